// Packing of a contraction's operands against the machine's copy: each sample lies between two measurements
// of the better of plain and streaming copies, and its share is of their mean. Sizes are those of GPT-2 124M
// at 4,096 tokens: activations as operand a of forward, a and b of the gradient of the weight; weights as
// operand b of forward and of the gradient of the input. Bytes are those of the operand read and of the
// packed one written. Panels are those of the machine's own kernels, and, where it has AVX-512 and no AMX,
// also those of tiles, whose packing needs no more. Environment: BENCH_THREADS (2), BENCH_CALLS, measurements
// a row (9).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "mantissa/base/buffer.h"
#include "mantissa/base/clock.h"
#include "mantissa/base/random.h"
#include "mantissa/device/cpu/contraction/choice.h"
#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/device/cpu/peaks.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::on_cpu {
namespace {

ThreadPool& pool() {
    static ThreadPool threads(option("BENCH_THREADS", 2));
    return threads;
}

/// One operand: what it is to the contraction, and its sizes as stored, row-major.
struct Packing {
    std::string name;
    ContractionProblem problem;
    Side side = Side::a;
    std::int64_t rows = 0, columns = 0;
};

/// Contractions whose other operand and output are as small as they can be: how an operand is packed follows
/// from its own sizes and types.
std::vector<Packing> packings(DType type) {
    constexpr std::int64_t tokens = 4096;
    std::vector<Packing> all;
    for (const std::int64_t width : {std::int64_t{768}, std::int64_t{3072}}) {
        const MatrixLayout activations{.dtype = type, .leading = width};
        MatrixLayout turned = activations;
        turned.transpose = Transpose::yes;
        const MatrixLayout other{.dtype = type, .leading = tokens};
        const MatrixLayout out{.dtype = DType::f32, .leading = tokens};
        const std::string size = "/" + std::to_string(tokens) + "x" + std::to_string(width);
        all.push_back({"forward a" + size,
                       {.m = tokens, .n = 768, .k = width, .a = activations, .b = other, .out = out},
                       Side::a,
                       tokens,
                       width});
        all.push_back({"dW a" + size,
                       {.m = width, .n = 768, .k = tokens, .a = turned, .b = other, .out = out},
                       Side::a,
                       tokens,
                       width});
        all.push_back({"dW b" + size,
                       {.m = 768, .n = width, .k = tokens, .a = other, .b = activations, .out = out},
                       Side::b,
                       tokens,
                       width});
    }
    for (const auto& [rows, columns] :
         {std::array<std::int64_t, 2>{3072, 768}, std::array<std::int64_t, 2>{50304, 768}}) {
        const MatrixLayout weights{.dtype = type, .leading = columns};
        MatrixLayout turned = weights;
        turned.transpose = Transpose::yes;
        const MatrixLayout other{.dtype = type, .leading = rows};
        const MatrixLayout out{.dtype = DType::f32, .leading = rows};
        const std::string size = "/" + std::to_string(rows) + "x" + std::to_string(columns);
        all.push_back({"forward b" + size,
                       {.m = tokens, .n = rows, .k = columns, .a = other, .b = turned, .out = out},
                       Side::b,
                       rows,
                       columns});
        all.push_back({"dX b" + size,
                       {.m = tokens, .n = columns, .k = rows, .a = other, .b = weights, .out = out},
                       Side::b,
                       rows,
                       columns});
    }
    return all;
}

void run(benchmark::State& state, const Packing& packing, DType type, const ContractionKernels& kernels) {
    const std::size_t stored = static_cast<std::size_t>(packing.rows * packing.columns) * size_of(type);
    const std::size_t packed = packed_bytes(packing.problem, packing.side, kernels);
    // Sets in turn, several times the last cache together.
    const std::size_t sets = std::clamp<std::size_t>((std::size_t{256} << 20) / (stored + packed), 2, 32);
    std::vector<Buffer> from, to;
    const RandomStream random{.seed = 1};
    for (std::size_t set = 0; set < sets; ++set) {
        from.emplace_back(stored);
        to.emplace_back(packed);
        const auto words = from.back().as<BF16>();
        for (std::size_t i = 0; i < words.size(); ++i)
            words[i] = i < (1u << 16) ? to_bf16(random.normal(i)) : words[i - (1u << 16)];
        std::ranges::fill(to.back().as<std::byte>(), std::byte{0});
    }
    std::vector<double> shares, seconds;
    std::size_t turn = 0;
    double before = copy_bandwidth(pool());
    for (auto _ : state) {
        turn = (turn + 1) % sets;
        const Stopwatch watch;
        pack(packing.problem, packing.side, from[turn].data(), to[turn].as<std::byte>(), pool(), kernels);
        seconds.push_back(watch.seconds());
        const double after = copy_bandwidth(pool());
        shares.push_back(static_cast<double>(stored + packed) / seconds.back() / ((before + after) / 2));
        before = after;
        state.SetIterationTime(seconds.back());
    }
    state.counters["GB_s"] = static_cast<double>(stored + packed) / median(seconds) * 1e-9;
    state.counters["copy_GB_s"] = before * 1e-9;
    state.counters["share_of_copy"] = median(shares);
}

/// `chosen` gives the kernels for a problem.
template <class Choose>
void register_rows(const std::string& panels, DType type, int calls, Choose chosen) {
    for (const Packing& packing : packings(type)) {
        const std::string name = panels + "/" + std::string(name_of(type)) + "/" + packing.name;
        const ContractionKernels kernels = chosen(packing.problem);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [=](benchmark::State& state) { run(state, packing, type, kernels); })
            ->UseManualTime()
            ->Iterations(calls)
            ->Unit(benchmark::kMillisecond);
    }
}

void register_all(int calls) {
    const Isa isa = best_isa();
    for (const DType type : {DType::bf16, DType::f32})
        register_rows(std::string(name_of(isa)), type, calls,
                      [=](const ContractionProblem& problem) { return kernels_of(problem, isa); });
    if (isa != Isa::avx512) return;
    ContractionKernels tiles = contraction_kernels_amx();
    tiles.begin = tiles.end = nullptr;  // they are packed for and not multiplied on
    register_rows("tiles", DType::bf16, calls, [=](const ContractionProblem&) { return tiles; });
}

}  // namespace
}  // namespace mantissa::on_cpu

int main(int argc, char** argv) {
    mantissa::on_cpu::register_all(mantissa::on_cpu::option("BENCH_CALLS", 9));
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
