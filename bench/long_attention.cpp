// Attention of one long head, BF16 and causal, on the unit of the chosen level: the gain of a second thread,
// and the growth of memory.
//
// threads/PASS/T: samples alternate between a pool of one thread and one of two; `speedup` is the median of
// their ratios, by wall time, so both cores must be free. memory/T: forward and backward once, with operands
// of their own. In MiB: `tensors`, q, k, v, do, o, dq, dk, dv and the log-sum-exp; `workspace`, the
// operation's own, of the pass with the larger need; `resident`, the growth of the process until both had
// run; `scores`, one T x T in BF16, and `eager`, the planned arena of the eager graph in FP32, neither of
// which is allocated. Environment: BENCH_CALLS, samples (7).
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "bench/attention_case.h"
#include "bench/measure.h"
#include "mantissa/base/clock.h"
#include "mantissa/base/system_memory.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/device/cpu/isa.h"
#include "mantissa/runtime/plan.h"

namespace mantissa::on_cpu {
namespace {

AttentionShape one_head(std::int64_t positions) {
    return {.heads = 1, .positions = positions, .head_size = 64, .causal = true, .dtype = DType::bf16};
}

double seconds_of(AttentionRun& run, bool backward) {
    const Stopwatch watch;
    run.run(backward);
    return watch.seconds();
}

void run_threads(benchmark::State& state, std::int64_t positions, bool backward) {
    static ThreadPool one(1), two(2);
    const AttentionShape shape = one_head(positions);
    AttentionRun alone(shape, chosen_isa(), one), together(shape, chosen_isa(), two);
    alone.run(backward);
    together.run(backward);
    std::vector<double> ratios, alone_seconds;
    for (auto _ : state) {
        alone_seconds.push_back(seconds_of(alone, backward));
        const double seconds = seconds_of(together, backward);
        ratios.push_back(alone_seconds.back() / seconds);
        state.SetIterationTime(seconds);
    }
    state.SetLabel(alone.kernels().name);
    state.counters["speedup"] = median(ratios);
    state.counters["one_thread_ms"] = median(alone_seconds) * 1e3;
}

double mebibytes(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::int64_t eager_arena_bytes(const AttentionShape& shape) {
    static const auto device = make_cpu_device({.threads = 2});
    return Plan(eager_attention(shape, true), *device).memory().arena_bytes;
}

void run_memory(benchmark::State& state, std::int64_t positions) {
    static ThreadPool two(2);
    AttentionRun(one_head(64), chosen_isa(), two).run(true);  // maps stacks and code before
    const AttentionShape shape = one_head(positions);
    const std::int64_t eager = eager_arena_bytes(shape), before = resident_memory();
    AttentionRun attention(shape, chosen_isa(), two);
    for (auto _ : state) state.SetIterationTime(seconds_of(attention, true));
    state.SetLabel(attention.kernels().name);
    state.counters["tensors"] = mebibytes(attention.tensor_bytes());
    state.counters["workspace"] = mebibytes(attention.workspace_bytes());
    state.counters["resident"] = mebibytes(resident_memory() - before);
    state.counters["scores"] = mebibytes(positions * positions * 2);
    state.counters["eager"] = mebibytes(eager);
}

template <class Body>
void add(const std::string& name, int calls, Body body) {
    benchmark::RegisterBenchmark(name.c_str(), body)
        ->UseManualTime()
        ->Iterations(calls)
        ->Unit(benchmark::kMillisecond);
}

}  // namespace
}  // namespace mantissa::on_cpu

int main(int argc, char** argv) {
    using namespace mantissa::on_cpu;
    for (const bool backward : {false, true})
        add(std::string("threads/") + (backward ? "both" : "forward") + "/T:4096", option("BENCH_CALLS", 7),
            [=](benchmark::State& state) { run_threads(state, 4096, backward); });
    for (const std::int64_t positions : {4096, 8192, 16384})
        add("memory/T:" + std::to_string(positions), 1,
            [=](benchmark::State& state) { run_memory(state, positions); });
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
