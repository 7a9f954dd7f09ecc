// Products of bytes, at M=4096, N=3072, K=768. Each call is compared with a BF16 contraction of the same
// shape, and runs between two measurements of its unit's peak; `share` is of that peak, `over_bf16` a ratio
// of rates. Times are the threads' core time (BENCH_THREADS, 1); medians of BENCH_CALLS (7).
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "mantissa/base/buffer.h"
#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/device/cpu/peaks.h"
#include "mantissa/device/cpu/unit_rates.h"

namespace mantissa::on_cpu {
namespace {

constexpr std::int64_t M = 4096, N = 3072, K = 768;
constexpr double operations = 2.0 * M * N * K;

/// Seconds of processor time, of all threads.
template <class Work>
double timed(Work work) {
    const double start = cpu_seconds();
    work();
    return cpu_seconds() - start;
}

/// Filled with 59 as bytes, or 0.0029 as BF16.
Buffer operand(std::int64_t bytes) {
    Buffer buffer(static_cast<std::size_t>(bytes));
    std::memset(buffer.data(), 0x3b, buffer.size());
    return buffer;
}

void run(benchmark::State& state, Isa isa) {
    ThreadPool pool(option("BENCH_THREADS", 1)), one_thread(1);
    const Buffer a = operand(2 * M * K), b = operand(2 * N * K), d(M * N * 4);
    const PreparedContraction bytes =
        prepare_contraction({.m = M,
                             .n = N,
                             .k = K / 4,
                             .a = {.leading = K / 4},
                             .b = {.transpose = Transpose::yes, .leading = K / 4},
                             .out = {.leading = N}},
                            byte_kernels_of(M, isa));
    const PreparedContraction bf16 =
        prepare_contraction({.m = M,
                             .n = N,
                             .k = K,
                             .a = {.dtype = DType::bf16, .leading = K},
                             .b = {.dtype = DType::bf16, .transpose = Transpose::yes, .leading = K},
                             .out = {.leading = N}},
                            isa);
    const Buffer of_bytes(bytes.workspace_bytes(pool.threads())),
        of_bf16(bf16.workspace_bytes(pool.threads()));
    const ContractionArguments arguments{.a = a.data(), .b = b.data(), .out = d.data()};
    const auto multiply = [&] { contract(bytes, arguments, of_bytes.as<std::byte>(), pool); };
    const auto contraction = [&] { contract(bf16, arguments, of_bf16.as<std::byte>(), pool); };
    multiply();
    contraction();
    const PeakLoop loop = format_units(isa).s8.loop;
    std::vector<double> rates, shares, over_bf16;
    for (auto _ : state) {
        const double before = measured_rate(one_thread, loop, 0.02);
        const double seconds = timed(multiply);
        const double after = measured_rate(one_thread, loop, 0.02);
        rates.push_back(operations / seconds * 1e-12);
        shares.push_back(operations / seconds / ((before + after) / 2));
        over_bf16.push_back(timed(contraction) / seconds);
        state.SetIterationTime(seconds);
    }
    state.counters["TOP/s"] = median(rates);
    state.counters["share"] = median(shares);
    state.counters["over_bf16"] = median(over_bf16);
}

}  // namespace
}  // namespace mantissa::on_cpu

int main(int argc, char** argv) {
    using namespace mantissa::on_cpu;
    for (const Isa isa : {Isa::avx2, Isa::avx512, Isa::amx}) {
        if (isa > best_isa()) continue;
        benchmark::RegisterBenchmark((std::string(name_of(isa)) + "/s8*s8+s32").c_str(),
                                     [=](benchmark::State& state) { run(state, isa); })
            ->UseManualTime()
            ->Iterations(option("BENCH_CALLS", 7))
            ->Unit(benchmark::kMillisecond);
    }
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
