// The matrix modes as contractions, at M=4096, N=3072, K=768: FP64, FP16 sums, bytes, half bytes, bits, and
// every mode that has one with a 2:4 sparse first operand. Each call stands beside a contraction of BF16
// operands of the same shape, a sparse one beside the same with a dense operand, and a mode between two
// measurements of the peak of its unit; `share` is of that peak, `over_bf16` and `over_dense` are ratios of
// rates. Times are those for which the threads had a core (BENCH_THREADS, 1); medians of BENCH_CALLS (7).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "bench/measure.h"
#include "mantissa/base/buffer.h"
#include "mantissa/base/random.h"
#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/device/cpu/format_units.h"
#include "mantissa/device/cpu/modes/matrix_mode.h"
#include "mantissa/device/cpu/peaks.h"
#include "mantissa/device/cpu/sparse.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::on_cpu {
namespace {

ThreadPool& pool() {
    static ThreadPool threads(option("BENCH_THREADS", 1));
    return threads;
}

constexpr std::int64_t M = 4096, N = 3072, K = 768;
constexpr double operations = 2.0 * M * N * K;

/// Seconds of processor time, of all threads.
template <class Work>
double timed(Work work) {
    const double start = cpu_seconds();
    work();
    return cpu_seconds() - start;
}

/// What is measured: a matrix mode, or a contraction.
struct Case {
    std::string name;
    std::variant<MatrixMode, ContractionProblem> how;
    bool sparse = false;
};

/// a, b and the result; numbers are of the type's bits, whole ones or 1.
class Product {
  public:
    Product(const Case& of, Isa isa) : isa_(isa) {
        if (const auto* mode = std::get_if<MatrixMode>(&of.how))
            prepare(*mode, of.sparse);
        else
            prepare(std::get<ContractionProblem>(of.how), of.sparse);
        d_ = Buffer(M * N * 8);
    }
    void run() {
        const std::uint8_t* const positions = positions_.as<std::uint8_t>().data();
        if (contracts_)
            contract(contraction_,
                     {.a = a_.data(), .b = b_.data(), .out = d_.data(), .a_positions = positions},
                     workspace_.as<std::byte>(), pool());
        else
            multiply(mode_, {.a = a_.data(), .positions = positions, .b = b_.data(), .d = d_.data()},
                     workspace_.as<std::byte>(), pool(), isa_);
    }

  private:
    void prepare(MatrixMode mode, bool sparse) {
        mode_ = {.mode = mode, .m = M, .n = N, .k = K};
        if (sparse) mode_.first = FirstOperand::two_of_four;
        a_ = operand(mode, M), b_ = operand(mode, N);
        workspace_ = Buffer(workspace_bytes(mode_, isa_, pool().threads()));
        if (sparse)
            compress_first(mode == MatrixMode::f16  ? SparseFormat::f16
                           : mode == MatrixMode::s8 ? SparseFormat::s8
                                                    : SparseFormat::s4);
    }
    void prepare(ContractionProblem problem, bool sparse) {
        contracts_ = true;
        problem.a.two_of_four = sparse;
        contraction_ = prepare_contraction(problem, isa_);
        a_ = ones(problem.a.dtype, M), b_ = ones(problem.b.dtype, N);
        workspace_ = Buffer(contraction_.workspace_bytes(pool().threads()));
        if (sparse) compress_first(sparse_format_of(problem.a.dtype));
    }
    void compress_first(SparseFormat format) {
        const SparseSizes sizes = sparse_sizes(format, M, K);
        Buffer values(sizes.values);
        positions_ = Buffer(sizes.positions);
        prune(format, a_.data(), M, K);
        compress(format, a_.data(), M, K, values.data(), positions_.as<std::uint8_t>().data());
        a_ = std::move(values);
    }
    static Buffer ones(DType type, std::int64_t rows) {
        Buffer buffer(static_cast<std::size_t>(rows * K) * size_of(type));
        for (std::int64_t i = 0; i < rows * K; ++i) store_from_f64(buffer.data(), type, i, 1);
        return buffer;
    }
    static Buffer operand(MatrixMode mode, std::int64_t rows) {
        if (mode == MatrixMode::f64) return ones(DType::f64, rows);
        if (mode == MatrixMode::f16) return ones(DType::f16, rows);
        const std::int64_t bits = mode == MatrixMode::s8 ? 8 : mode == MatrixMode::s4 ? 4 : 1;
        Buffer buffer(static_cast<std::size_t>(rows * K * bits / 8));
        const RandomStream random{.seed = 1};
        for (std::size_t i = 0; i < buffer.as<std::uint32_t>().size(); ++i)
            buffer.as<std::uint32_t>()[i] = random.bits(i);
        return buffer;
    }

    Isa isa_;
    bool contracts_ = false;
    ModeProblem mode_;
    PreparedContraction contraction_;
    Buffer a_, positions_, b_, d_, workspace_;
};

ContractionProblem contraction_of(DType type, Multiply multiply = Multiply::as_stored) {
    return {.m = M,
            .n = N,
            .k = K,
            .a = {.dtype = type, .leading = K},
            .b = {.dtype = type, .transpose = Transpose::yes, .leading = K},
            .out = {.leading = N},
            .multiply = multiply};
}

/// Nothing for contractions, whose own benchmark has their shares.
PeakLoop peak_of(const Case& of, Isa isa) {
    const auto* const mode = std::get_if<MatrixMode>(&of.how);
    if (!mode) return nullptr;
    const FormatUnits units = format_units(isa);
    switch (*mode) {
        case MatrixMode::f64:
            return units.f64.loop;
        case MatrixMode::f16:
            return units.f16.loop ? units.f16.loop : units.f16_as_f32.loop;
        case MatrixMode::s8:
        case MatrixMode::s4:
            return units.s8.loop;
        default:
            return units.b1.loop;
    }
}

void run(benchmark::State& state, const Case& of, Isa isa) {
    Product product(of, isa), bf16({"", contraction_of(DType::bf16)}, isa);
    std::optional<Product> dense;
    if (of.sparse) dense.emplace(Case{of.name, of.how}, isa);
    product.run();
    bf16.run();
    ThreadPool one_thread(1);
    const PeakLoop loop = peak_of(of, isa);
    std::vector<double> rates, shares, over_bf16, over_dense;
    for (auto _ : state) {
        const auto peak = [&] { return loop ? measured_rate(one_thread, loop, 0.02) : 0; };
        const double before = peak();
        const double seconds = timed([&] { product.run(); });
        const double after = peak();
        rates.push_back(operations / seconds * 1e-12);
        shares.push_back(operations / seconds / ((before + after) / 2));
        over_bf16.push_back(timed([&] { bf16.run(); }) / seconds);
        if (dense) over_dense.push_back(timed([&] { dense->run(); }) / seconds);
        state.SetIterationTime(seconds);
    }
    state.counters["TOP/s"] = median(rates);
    if (loop) state.counters["share"] = median(shares);
    state.counters["over_bf16"] = median(over_bf16);
    if (dense) state.counters["over_dense"] = median(over_dense);
}

void add(const Case& of, Isa isa) {
    benchmark::RegisterBenchmark(
        (std::string(name_of(isa)) + "/" + of.name + (of.sparse ? ", 2:4 sparse" : "")).c_str(),
        [=](benchmark::State& state) { run(state, of, isa); })
        ->UseManualTime()
        ->Iterations(option("BENCH_CALLS", 7))
        ->Unit(benchmark::kMillisecond);
}

}  // namespace
}  // namespace mantissa::on_cpu

int main(int argc, char** argv) {
    using namespace mantissa::on_cpu;
    using mantissa::DType;
    for (const Isa isa : {Isa::avx2, Isa::avx512}) {
        if (isa > best_isa()) continue;
        for (const MatrixMode mode :
             {MatrixMode::f64, MatrixMode::f16, MatrixMode::s8, MatrixMode::s4, MatrixMode::b1_exclusive_or})
            add({std::string(name_of(mode)), mode}, isa);
        for (const MatrixMode mode : {MatrixMode::f16, MatrixMode::s8, MatrixMode::s4})
            add({std::string(name_of(mode)), mode, true}, isa);
        add({"f32*f32+f32", contraction_of(DType::f32), true}, isa);
        add({"tf32*tf32+f32", contraction_of(DType::f32, Multiply::tf32), true}, isa);
        add({"f16*f16+f32", contraction_of(DType::f16), true}, isa);
        add({"bf16*bf16+f32", contraction_of(DType::bf16), true}, isa);
    }
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
