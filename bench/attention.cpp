// Attention of one layer of GPT-2 124M, and at longer contexts: forward, and forward with backward. Compared
// with the eager graph, which scales, masks and stores the scores, through contraction and row kernels.
//
// Each sample runs both; the kernel runs between two measurements of one thread's peak on its multiplying
// unit. Medians are reported. `share`: of that peak times the threads, for two products forward and five
// backward, of visible pairs only. `share_cpu`: by the threads' core time, the one to read on a shared
// machine. `speedup`: the eager graph's time over the kernel's, also by core time. Environment: BENCH_THREADS
// (2), BENCH_CALLS, samples a shape (5). Names are LEVEL/PASS/TYPE/...
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bench/attention_case.h"
#include "bench/measure.h"
#include "mantissa/base/buffer.h"
#include "mantissa/base/clock.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/device/cpu/peaks.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"

namespace mantissa::on_cpu {
namespace {

std::unique_ptr<Device> device_at(Isa isa, int threads) {
    ::setenv("MANTISSA_ISA", std::string(name_of(isa)).c_str(), 1);
    auto device = make_cpu_device({.threads = threads});
    ::unsetenv("MANTISSA_ISA");
    return device;
}

/// The eager graph, forward or forward and backward, through the contraction and the row kernels.
class Plain {
  public:
    Plain(const AttentionShape& shape, Isa isa, int threads, bool backward)
        : device_(device_at(isa, threads)), plan_(eager_attention(shape, backward), *device_) {
        state_ = std::make_unique<StateBlock>(*device_, plan_.graph().states());
        arena_ = device_->allocate(static_cast<std::size_t>(plan_.memory().arena_bytes), "arena");
        execution_ = std::make_unique<Execution>(plan_, *state_, *arena_);
        for (std::uint32_t i = 0; i < 4; ++i) {
            const Buffer x = attention_tensor(shape, i);
            execution_->set_input("x" + std::to_string(i), x.as<const std::byte>());
        }
    }
    void run() { execution_->run(); }

  private:
    std::unique_ptr<Device> device_;
    Plan plan_;
    std::unique_ptr<StateBlock> state_;
    std::unique_ptr<DeviceMemory> arena_;
    std::unique_ptr<Execution> execution_;
};

void run(benchmark::State& state, const AttentionShape& shape, Isa isa, bool backward) {
    static ThreadPool pool(option("BENCH_THREADS", 2)), one(1);
    AttentionRun kernels(shape, isa, pool);
    std::unique_ptr<Plain> plain;
    if (shape.with_plain) plain = std::make_unique<Plain>(shape, isa, pool.threads(), backward);
    const double flops = shape.pairs() * static_cast<double>(shape.head_size) * (backward ? 14 : 4);
    std::vector<double> shares, shares_cpu, seconds, speedups;
    kernels.run(backward);
    if (plain) plain->run();
    const Bf16Unit unit = shape.dtype == DType::bf16 ? bf16_unit(isa) : Bf16Unit::none;
    const auto peak_of_one = [&] {
        return unit == Bf16Unit::none ? measured_fma_peak(one, isa, 0.02)
                                      : measured_bf16_peak(one, unit, 0.02);
    };
    double peak = 0;
    for (auto _ : state) {
        const double before = peak_of_one();
        const double cpu_start = cpu_seconds();
        const Stopwatch watch;
        kernels.run(backward);
        seconds.push_back(watch.seconds());
        const double on_cores = cpu_seconds() - cpu_start;
        peak = (before + peak_of_one()) / 2 * pool.threads();
        shares.push_back(flops / seconds.back() / peak);
        shares_cpu.push_back(flops / on_cores / peak * pool.threads());
        if (plain) {
            const double plain_start = cpu_seconds();
            plain->run();
            speedups.push_back((cpu_seconds() - plain_start) / on_cores);
        }
        state.SetIterationTime(seconds.back());
    }
    state.counters["share"] = median(shares);
    state.counters["share_cpu"] = median(shares_cpu);
    state.counters["GFLOP/s"] = flops / median(seconds) * 1e-9;
    state.counters["peak_GF"] = peak * 1e-9;
    state.counters["median_ms"] = median(seconds) * 1e3;
    if (!speedups.empty()) state.counters["speedup"] = median(speedups);
}

void add(Isa isa, const AttentionShape& shape) {
    for (const bool backward : {false, true}) {
        const std::string name =
            std::string(name_of(isa)) + (backward ? "/both/" : "/forward/") +
            std::string(name_of(shape.dtype)) + "/N:" + std::to_string(shape.heads) +
            "/T:" + std::to_string(shape.positions) + "/D:" + std::to_string(shape.head_size) +
            (shape.causal ? "/causal" : "/all") + (shape.interleaved ? "/interleaved" : "");
        benchmark::RegisterBenchmark(name.c_str(),
                                     [=](benchmark::State& state) { run(state, shape, isa, backward); })
            ->UseManualTime()
            ->Iterations(option("BENCH_CALLS", 5))
            ->Unit(benchmark::kMillisecond);
    }
}

void add_bf16(Isa isa) {
    for (const bool interleaved : {false, true})
        add(isa, {.heads = 12,
                  .positions = 1024,
                  .head_size = 64,
                  .causal = true,
                  .dtype = DType::bf16,
                  .with_plain = false,
                  .interleaved = interleaved});
}

}  // namespace
}  // namespace mantissa::on_cpu

int main(int argc, char** argv) {
    using namespace mantissa;
    using namespace mantissa::on_cpu;
    for (const Isa isa : {Isa::amx, Isa::avx512_bf16, Isa::avx512, Isa::avx2}) {
        if (isa > best_isa()) continue;
        if (isa >= Isa::avx512_bf16) {  // AVX-512 runs its FP32
            add_bf16(isa);
            continue;
        }
        add(isa, {.heads = 12, .positions = 1024, .head_size = 64, .causal = true});
        add(isa, {.heads = 12, .positions = 1024, .head_size = 64, .causal = false});
        add(isa, {.heads = 12, .positions = 1023, .head_size = 80, .causal = true});
        add(isa, {.heads = 1, .positions = 4096, .head_size = 64, .causal = true});
        add_bf16(isa);
    }
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
