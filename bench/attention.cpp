// Attention of one layer of GPT-2 124M, and longer: forward, and forward with backward, beside the eager
// graph, which scales, masks and stores the scores, through the contraction and the row kernels.
//
// Each sample runs both, the kernel between two measurements of the FMA peak of one thread. Reported are
// medians. `share`: of that peak times the threads, counting two products forward and five backward, of the
// visible pairs only (above 1 where BF16 is multiplied in pairs); `share_cpu` by the time that the threads
// had a core, which is the one to read on a machine shared with others; `speedup`: the eager graph's time
// over the kernel's, by that clock too. Environment: BENCH_THREADS (2), BENCH_CALLS, samples a shape (5).
// Names are LEVEL/PASS/TYPE/...
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "mantissa/base/buffer.h"
#include "mantissa/base/clock.h"
#include "mantissa/base/random.h"
#include "mantissa/device/cpu/attention/attention.h"
#include "mantissa/device/cpu/attention/places.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/device/cpu/peaks.h"
#include "mantissa/graph/gradient.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/passes/simplify.h"
#include "mantissa/runtime/execution.h"

namespace mantissa::cpu {
namespace {

struct Shape {
    std::int64_t heads, positions, head_size;
    bool causal;
    DType dtype = DType::f32;
    bool with_plain = true;
    bool interleaved = false;

    AttentionSize size() const {
        return {.heads = heads,
                .queries = positions,
                .keys = positions,
                .head_size = head_size,
                .causal = causal,
                .scale = 1 / std::sqrt(static_cast<float>(head_size)),
                .dtype = dtype};
    }
    std::int64_t elements() const { return heads * positions * head_size; }
    double pairs() const {
        const auto T = static_cast<double>(positions);
        return static_cast<double>(heads) * (causal ? T * (T + 1) / 2 : T * T);
    }
};

Buffer tensor(const Shape& shape, std::uint32_t operation) {
    Buffer buffer(static_cast<std::size_t>(shape.elements()) * size_of(shape.dtype), "benchmark");
    const RandomStream random{.seed = 1, .operation = operation};
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
        const float value = random.normal(static_cast<std::uint64_t>(i % 65536));
        if (shape.dtype == DType::f32)
            buffer.as<float>()[static_cast<std::size_t>(i)] = value;
        else
            store_from_f64(buffer.data(), shape.dtype, i, static_cast<double>(value));
    }
    return buffer;
}

/// The eager graph, forward or forward and backward, through the contraction and the row kernels.
class Plain {
  public:
    Plain(const Shape& shape, Isa isa, int threads, bool backward)
        : device_(device_at(isa, threads)), plan_(graph_of(shape, backward), *device_) {
        state_ = std::make_unique<StateBlock>(*device_, plan_.graph().states());
        arena_ = device_->allocate(static_cast<std::size_t>(plan_.memory().arena_bytes), "arena");
        execution_ = std::make_unique<Execution>(plan_, *state_, *arena_);
        for (std::uint32_t i = 0; i < 4; ++i) {
            const Buffer x = tensor(shape, i);
            execution_->set_input("x" + std::to_string(i), x.as<const std::byte>());
        }
    }
    void run() { execution_->run(); }

  private:
    static std::unique_ptr<Device> device_at(Isa isa, int threads) {
        ::setenv("MANTISSA_ISA", std::string(name_of(isa)).c_str(), 1);
        auto device = make_cpu_device({.threads = threads});
        ::unsetenv("MANTISSA_ISA");
        return device;
    }

    static Graph graph_of(const Shape& shape, bool backward) {
        Graph graph;
        const std::int64_t T = shape.positions;
        std::vector<Tensor> x;
        for (int i = 0; i < 4; ++i)
            x.emplace_back(graph, graph.add_input("x" + std::to_string(i),
                                                  {DType::f32, {1, shape.heads, T, shape.head_size}}));
        Tensor scores =
            matmul(x[0], x[1], {.transpose_b = true}) * (1 / std::sqrt(static_cast<double>(shape.head_size)));
        if (shape.causal)
            scores = select(less_equal(iota(graph, {T, T}, 1), iota(graph, {T, T}, 0)), scores,
                            constant(graph, -INFINITY));
        const Tensor o = matmul(softmax(scores), x[2]);
        graph.add_result("o", o.value());
        if (backward) {
            const auto gradients = backpropagate(graph, {&o, 1}, {&x[3], 1}, {x.data(), 3});
            for (const Tensor& gradient : gradients) graph.add_result("gradient", gradient.value());
        }
        return simplify(graph);
    }

    std::unique_ptr<Device> device_;
    Plan plan_;
    std::unique_ptr<StateBlock> state_;
    std::unique_ptr<DeviceMemory> arena_;
    std::unique_ptr<Execution> execution_;
};

/// As the device chooses them.
const AttentionKernels& kernels_for(const AttentionSize& size, Isa isa) {
    const AttentionKernels* const of_unit = attention_kernels(bf16_unit(isa));
    return of_unit && refusal(*of_unit, size).empty() ? *of_unit : attention_kernels(isa);
}

/// The kernels on operands of their own.
class Kernels {
  public:
    Kernels(const Shape& shape, Isa isa, ThreadPool& pool)
        : size_(shape.size()),
          interleaved_(shape.interleaved),
          kernels_(kernels_for(size_, isa)),
          pool_(pool) {
        for (std::uint32_t i = 0; i < 8; ++i) {
            Shape whole = shape;
            if (interleaved_ && (i == 0 || i == 5)) whole.heads *= 3;
            x_.push_back(tensor(whole, i));
        }
        lse_ = Buffer(static_cast<std::size_t>(shape.heads * shape.positions) * 4, "log-sum-exp");
        const std::int64_t bytes = std::max(attention_workspace(kernels_, size_, pool.threads()),
                                            attention_grad_workspace(kernels_, size_, pool.threads()));
        workspace_ = Buffer(static_cast<std::size_t>(bytes), "workspace");
    }
    void run(bool backward) {
        float *const lse = lse_.as<float>().data(), *const work = workspace_.as<float>().data();
        attention(kernels_,
                  {.size = size_,
                   .q = at<ConstHeads>(0),
                   .k = at<ConstHeads>(1),
                   .v = at<ConstHeads>(2),
                   .o = at<Heads>(4),
                   .lse = lse,
                   .workspace = work},
                  pool_);
        if (!backward) return;
        attention_grad(kernels_,
                       {.size = size_,
                        .d_o = at<ConstHeads>(3),
                        .q = at<ConstHeads>(0),
                        .k = at<ConstHeads>(1),
                        .v = at<ConstHeads>(2),
                        .o = at<ConstHeads>(4),
                        .lse = lse,
                        .dq = at<Heads>(5),
                        .dk = at<Heads>(6),
                        .dv = at<Heads>(7),
                        .workspace = work},
                       pool_);
    }

  private:
    /// [B, H, T, D], one tensor after another; or [B, T, H, D], and [B, T, 3, H, D] where three belong
    /// together, as GPT-2's linear layers give and take them.
    template <class T>
    T at(std::size_t i) {
        const std::int64_t H = size_.heads, D = size_.head_size;
        if (!interleaved_) return {x_[i].data(), dense_strides(H, size_.queries, D)};
        const bool of_three = i < 3 || i > 4;
        const std::int64_t width = (of_three ? 3 : 1) * H * D;
        const std::size_t first = i < 3 ? 0 : i > 4 ? 5 : i;
        const auto start = (i - first) * static_cast<std::size_t>(H * D) * size_of(size_.dtype);
        return {x_[first].data() + start, {.sequence = size_.queries * width, .head = D, .position = width}};
    }

    AttentionSize size_;
    bool interleaved_;
    const AttentionKernels& kernels_;
    ThreadPool& pool_;
    std::vector<Buffer> x_;  // q, k, v, do, o, dq, dk, dv
    Buffer lse_, workspace_;
};

void run(benchmark::State& state, const Shape& shape, Isa isa, bool backward) {
    static ThreadPool pool(option("BENCH_THREADS", 2)), one(1);
    Kernels kernels(shape, isa, pool);
    std::unique_ptr<Plain> plain;
    if (shape.with_plain) plain = std::make_unique<Plain>(shape, isa, pool.threads(), backward);
    const double flops = shape.pairs() * static_cast<double>(shape.head_size) * (backward ? 14 : 4);
    std::vector<double> shares, shares_cpu, seconds, speedups;
    kernels.run(backward);
    if (plain) plain->run();
    double peak = 0;
    for (auto _ : state) {
        const double before = measured_fma_peak(one, isa, 0.02);
        const double cpu_start = cpu_seconds();
        const Stopwatch watch;
        kernels.run(backward);
        seconds.push_back(watch.seconds());
        const double on_cores = cpu_seconds() - cpu_start;
        peak = (before + measured_fma_peak(one, isa, 0.02)) / 2 * pool.threads();
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

void add(Isa isa, const Shape& shape) {
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

}  // namespace
}  // namespace mantissa::cpu

int main(int argc, char** argv) {
    using namespace mantissa;
    using namespace mantissa::cpu;
    for (const Isa isa : {Isa::avx512, Isa::avx2}) {
        if (isa > best_isa()) continue;
        add(isa, {.heads = 12, .positions = 1024, .head_size = 64, .causal = true});
        add(isa, {.heads = 12, .positions = 1024, .head_size = 64, .causal = false});
        add(isa, {.heads = 12, .positions = 1023, .head_size = 80, .causal = true});
        add(isa, {.heads = 1, .positions = 4096, .head_size = 64, .causal = true});
        for (const bool interleaved : {false, true})
            add(isa, {.heads = 12,
                      .positions = 1024,
                      .head_size = 64,
                      .causal = true,
                      .dtype = DType::bf16,
                      .with_plain = false,
                      .interleaved = interleaved});
    }
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
