// The matrix modes as contractions, at M=4096, N=3072, K=768: FP64, bytes, half bytes, bits, and bytes with a
// 2:4 sparse first operand. Each call stands between two measurements of the peak of its unit and beside a
// contraction of BF16 operands of the same shape; `share` is of that peak, `over_bf16` the ratio of the two
// rates. Times are those for which the threads had a core (BENCH_THREADS, 1); medians of BENCH_CALLS (7).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "mantissa/base/buffer.h"
#include "mantissa/base/random.h"
#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/device/cpu/format_units.h"
#include "mantissa/device/cpu/modes/matrix_mode.h"
#include "mantissa/device/cpu/sparse.h"
#include "mantissa/device/cpu/peaks.h"

namespace mantissa::cpu {
namespace {

int option(const char* name, int standard) {
    const char* const text = std::getenv(name);
    return text ? std::atoi(text) : standard;
}

ThreadPool& pool() {
    static ThreadPool threads(option("BENCH_THREADS", 1));
    return threads;
}

constexpr std::int64_t M = 4096, N = 3072, K = 768;
constexpr double operations = 2.0 * M * N * K;

/// Seconds of processor time, of all threads.
template <class Work>
double timed(Work work) {
    const auto now = [] {
        timespec time{};
        ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
        return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    };
    const double start = now();
    work();
    return now() - start;
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

/// Random bytes, which are numbers of every integer format; FP64 gets whole numbers.
Buffer random_operand(MatrixMode mode, std::int64_t rows) {
    const std::int64_t bits = mode == MatrixMode::f64  ? 64
                              : mode == MatrixMode::s8 ? 8
                              : mode == MatrixMode::s4 ? 4
                                                       : 1;
    Buffer buffer(static_cast<std::size_t>(rows * K * bits / 8));
    const RandomStream random{.seed = 1};
    if (mode == MatrixMode::f64) {
        for (std::size_t i = 0; i < buffer.as<double>().size(); ++i)
            buffer.as<double>()[i] = static_cast<double>(i * 7 % 31) - 15;
        return buffer;
    }
    for (std::size_t i = 0; i < buffer.as<std::uint32_t>().size(); ++i)
        buffer.as<std::uint32_t>()[i] = random.bits(i);
    return buffer;
}

/// A contraction of BF16 operands, to compare with.
class Bf16Contraction {
  public:
    explicit Bf16Contraction(Isa isa) : isa_(isa), a_(M * K * 2), b_(N * K * 2), out_(M * N * 4) {
        problem_ = {.m = M, .n = N, .k = K};
        problem_.a = {.dtype = DType::bf16, .leading = K};
        problem_.b = {.dtype = DType::bf16, .transpose = Transpose::yes, .leading = K};
        problem_.out = {.leading = N};
        for (const Buffer* operand : {&a_, &b_})
            std::ranges::fill(operand->as<std::uint16_t>(), std::uint16_t{0x3f80});
        workspace_ = Buffer(workspace_bytes(problem_, isa, pool().threads()));
    }
    void run() {
        contract(problem_, {.a = a_.data(), .b = b_.data(), .out = out_.data()}, workspace_.as<std::byte>(),
                 pool(), isa_);
    }

  private:
    Isa isa_;
    ContractionProblem problem_;
    Buffer a_, b_, out_, workspace_;
};

const FormatUnit& unit_of(const FormatUnits& units, MatrixMode mode) {
    return mode == MatrixMode::f64                            ? units.f64
           : mode == MatrixMode::s8 || mode == MatrixMode::s4 ? units.s8
                                                              : units.b1;
}

void run(benchmark::State& state, ModeProblem problem, Isa isa) {
    Buffer a = random_operand(problem.mode, M);
    const Buffer b = random_operand(problem.mode, N);
    Buffer d(M * N * 8);
    Buffer values, positions;
    if (problem.first == FirstOperand::two_of_four) {
        const SparseSizes sizes = sparse_sizes(SparseFormat::s8, M, K);
        values = Buffer(sizes.values), positions = Buffer(sizes.positions);
        prune(SparseFormat::s8, a.data(), M, K);
        compress(SparseFormat::s8, a.data(), M, K, values.data(), positions.as<std::uint8_t>().data());
        a = std::move(values);
    }
    const Buffer workspace(workspace_bytes(problem, isa, pool().threads()));
    Bf16Contraction bf16(isa);
    const auto once = [&] {
        multiply(
            problem,
            {.a = a.data(), .positions = positions.as<std::uint8_t>().data(), .b = b.data(), .d = d.data()},
            workspace.as<std::byte>(), pool(), isa);
    };
    once();
    bf16.run();
    ThreadPool one_thread(1);
    const FormatUnits units = format_units(isa);
    std::vector<double> rates, shares, over_bf16;
    for (auto _ : state) {
        const auto peak = [&] { return measured_rate(one_thread, unit_of(units, problem.mode).loop, 0.02); };
        const double before = peak();
        const double seconds = timed(once);
        const double after = peak();
        rates.push_back(operations / seconds * 1e-12);
        shares.push_back(operations / seconds / ((before + after) / 2));
        over_bf16.push_back(timed([&] { bf16.run(); }) / seconds);
        state.SetIterationTime(seconds);
    }
    state.counters["TOP/s"] = median(rates);
    state.counters["share"] = median(shares);
    state.counters["over_bf16"] = median(over_bf16);
}

void add(const std::string& name, const ModeProblem& problem, Isa isa) {
    benchmark::RegisterBenchmark((std::string(name_of(isa)) + "/" + name).c_str(),
                                 [=](benchmark::State& state) { run(state, problem, isa); })
        ->UseManualTime()
        ->Iterations(option("BENCH_CALLS", 7))
        ->Unit(benchmark::kMillisecond);
}

}  // namespace
}  // namespace mantissa::cpu

int main(int argc, char** argv) {
    using namespace mantissa::cpu;
    for (const Isa isa : {Isa::avx2, Isa::avx512}) {
        if (isa > best_isa()) continue;
        for (const MatrixMode mode :
             {MatrixMode::f64, MatrixMode::s8, MatrixMode::s4, MatrixMode::b1_exclusive_or})
            add(std::string(name_of(mode)), {.mode = mode, .m = M, .n = N, .k = K}, isa);
        add("s8*s8+s32, 2:4 sparse",
            {.mode = MatrixMode::s8, .first = FirstOperand::two_of_four, .m = M, .n = N, .k = K}, isa);
    }
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
