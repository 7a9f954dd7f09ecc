// Attention as one operation, compared with its separate lines, which stay where match_attention leaves a
// softmax unchanged: product, scale, score function, softmax, product; forward, and with backward.
//
// The same passes build both from the same lines, with match_attention and without; their plans' samples
// alternate. `ratio`: time of the one operation over the lines' time, the median of the samples' ratios;
// `one_ms` and `lines_ms`: their times. Queries, keys and values are parameters, with copies in the policy's
// format. One thread is timed by its processor time, more threads by wall time. Six heads a sequence.
// Environment: BENCH_THREADS (1), BENCH_CALLS, samples (9), BENCH_SEQUENCES (2), BENCH_HEAD, the size of a
// head (64), BENCH_POSITIONS, of the longest text (1024). MANTISSA_ISA chooses the level. Names are
// FORM/PASS/POLICY/T:positions.
#include <benchmark/benchmark.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "mantissa/base/random.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/graph.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::on_cpu {
namespace {

const std::int64_t sequences = option("BENCH_SEQUENCES", 2), head_size = option("BENCH_HEAD", 64);
constexpr std::int64_t heads = 6;
constexpr double infinity = std::numeric_limits<double>::infinity();

Tensor queries_of(Graph& graph, std::int64_t T) { return iota(graph, {T, T}, 0); }
Tensor keys_of(Graph& graph, std::int64_t T) { return iota(graph, {T, T}, 1); }

Tensor shown(Tensor visible, Tensor scores) {
    return select(visible, scores, constant(scores.graph(), -infinity));
}
Tensor causal(Tensor scores, std::int64_t T) {
    Graph& graph = scores.graph();
    return shown(less_equal(keys_of(graph, T), queries_of(graph, T)), scores);
}

/// The function of scaled scores [B, H, T, T], and the function of their softmax.
struct Lines {
    std::string name;
    std::function<Tensor(Tensor scores, std::int64_t positions)> score = causal;
    std::function<Tensor(Tensor weights)> weights = [](Tensor x) { return x; };
};

Tensor input(Graph& graph, const char* name, Type type) { return {graph, graph.add_input(name, type)}; }

std::vector<Lines> all_lines() {
    return {{.name = "plain", .score = [](Tensor s, std::int64_t) { return s; }},
            {.name = "causal"},
            {.name = "window",
             .score =
                 [](Tensor s, std::int64_t T) {
                     Graph& graph = s.graph();
                     const Tensor i = queries_of(graph, T), j = keys_of(graph, T);
                     return causal(shown(less(i, j + static_cast<double>((T + 3) / 4)), s), T);
                 }},
            {.name = "documents",
             .score =
                 [](Tensor s, std::int64_t T) {
                     const Tensor ids = input(s.graph(), "documents", {DType::i32, {sequences, T}});
                     const Tensor same =
                         equal(reshape(ids, {sequences, 1, T, 1}), reshape(ids, {sequences, 1, 1, T}));
                     return causal(shown(same, s), T);
                 }},
            {.name = "capped",
             .score = [](Tensor s, std::int64_t T) { return causal(tanh(s / 30.0) * 30.0, T); }},
            {.name = "linear biases",
             .score =
                 [](Tensor s, std::int64_t T) {
                     Graph& graph = s.graph();
                     const Tensor slopes = input(graph, "slopes", {DType::f32, {heads, 1, 1}});
                     const Tensor distance = keys_of(graph, T) - queries_of(graph, T);
                     return causal(s + slopes * cast(distance, DType::f32), T);
                 }},
            {.name = "dense bias",
             .score =
                 [](Tensor s, std::int64_t T) {
                     const State bias{.name = "bias", .type = {DType::f32, {heads, T, T}}, .initializer = {}};
                     return causal(s + Tensor(s.graph(), s.graph().add_state(bias)), T);
                 }},
            {.name = "dropped weights", .weights = [](Tensor x) {
                 Graph& graph = x.graph();
                 return dropout(
                     x, {input(graph, "seed", {DType::i64, {}}), input(graph, "step", {DType::i64, {}})}, 0.1,
                     7);
             }}};
}

struct Case {
    Lines lines;
    std::int64_t positions;
    bool backward;
    std::string policy;
};

Tensor loss_of(Graph& graph, const Case& c) {
    const std::int64_t T = c.positions;
    const Shape shape{sequences, heads, T, head_size};
    std::vector<Tensor> x;
    for (const char* const name : {"q", "k", "v"})
        x.emplace_back(graph,
                       graph.add_state({.name = name, .type = {DType::f32, shape}, .initializer = {}}));
    const Tensor scores = c.lines.score(matmul(x[0], x[1], {.transpose_b = true}) * 0.125, T);
    const Tensor o = matmul(c.lines.weights(softmax(scores)), x[2]);
    return sum(o * input(graph, "do", {DType::f32, shape}), {0, 1, 2, 3});
}

BuiltGraph built(const Case& c, bool as_one, Device& device) {
    PipelineOptions options = all_passes(device.target(), c.policy);
    options.match_attention = as_one;
    Machine machine = machine_for_passes(device);
    machine.kernel_of = [asked = machine.kernel_of](const Graph& graph, const Node& node) {
        return KernelAnswer{.why_none = asked(graph, node).why_none};  // made even if it is slower
    };
    const auto model = [&](Graph& graph) { return loss_of(graph, c); };
    if (!c.backward) return build_evaluation(model, options, machine);
    return build_training_step(
        model,
        [](Graph& graph, Tensor loss, const std::vector<ParameterGradient>& gradients) {
            graph.add_result("loss", loss.value());
            for (const ParameterGradient& each : gradients)
                graph.add_result("by " + std::to_string(graph.results().size()), each.gradient.value());
        },
        options, machine);
}

/// Runs a built graph as a plan.
class Run {
  public:
    Run(const Case& c, bool as_one, Device& device) : device_(device) {
        BuiltGraph graph = built(c, as_one, device);
        plan_ = std::make_unique<Plan>(std::move(graph.graph), device);
        matched_ = !plan_->nodes_of("attention").empty();
        state_ = std::make_unique<StateBlock>(device, plan_->graph().states());
        for (const State& state : state_->states()) fill(state);
        arena_ = device.allocate(static_cast<std::size_t>(plan_->memory().arena_bytes), "arena");
        execution_ = std::make_unique<Execution>(*plan_, *state_, *arena_);
        for (const NodeId id : plan_->graph().inputs()) set_input(plan_->graph().node(id), c.positions);
    }
    void run() { execution_->run(); }
    bool matched() const { return matched_; }

  private:
    static double value(std::uint32_t which, std::int64_t i) {
        return static_cast<double>(
            RandomStream{.seed = 1, .operation = which}.normal(static_cast<std::uint64_t>(i % 65536)));
    }
    Buffer random_of(const Type& type, std::uint32_t which) {
        Buffer data(static_cast<std::size_t>(type.bytes()), "benchmark");
        for (std::int64_t i = 0; i < type.shape.elements(); ++i)
            store_from_f64(data.data(), type.dtype, i, value(which, i));
        return data;
    }
    void fill(const State& state) {
        state_->write(state.name, random_of(state.type, ++filled_).as<const std::byte>());
    }
    void set_input(const Node& node, std::int64_t T) {
        const Type& type = node.outputs[0];
        if (is_floating(type.dtype))
            return execution_->set_input(node.attributes.word("name"),
                                         random_of(type, ++filled_).as<const std::byte>());
        if (type.dtype == DType::i64) return give(node, std::vector<std::int64_t>{1});
        std::vector<std::int32_t> documents;  // two: three fifths and two fifths of the text
        for (std::int64_t i = 0; i < type.shape.elements(); ++i)
            documents.push_back(i % T * 5 < T * 3 ? 1 : 2);
        give(node, documents);
    }
    template <class T>
    void give(const Node& node, const std::vector<T>& values) {
        execution_->set_input(node.attributes.word("name"), std::span<const T>(values));
    }

    Device& device_;
    std::uint32_t filled_ = 0;
    bool matched_ = false;
    std::unique_ptr<Plan> plan_;
    std::unique_ptr<StateBlock> state_;
    std::unique_ptr<DeviceMemory> arena_;
    std::unique_ptr<Execution> execution_;
};

void compare(benchmark::State& state, const Case& c) {
    const int threads = option("BENCH_THREADS", 1);
    static const auto device = make_cpu_device({.threads = threads});
    Run one(c, true, *device), lines(c, false, *device);
    if (!one.matched()) return state.SkipWithError("attention was not found, or refused");
    const auto seconds = [&](Run& run, int calls) {
        return seconds_of(threads,
                          [&] {
                              for (int i = 0; i < calls; ++i) run.run();
                          }) /
               calls;
    };
    seconds(one, 1);
    // Enough calls a sample for 2 ms.
    const int calls = 1 + static_cast<int>(2e-3 / seconds(lines, 1));
    seconds(one, 1);
    std::vector<double> ratios, of_one, of_lines;
    for (auto _ : state) {
        const double before = seconds(lines, calls), time = seconds(one, calls),
                     after = seconds(lines, calls);
        ratios.push_back(2 * time / (before + after));
        of_one.push_back(1e3 * time);
        of_lines.push_back(500 * (before + after));
        state.SetIterationTime(time);
    }
    state.counters["ratio"] = median(ratios);
    state.counters["one_ms"] = median(of_one);
    state.counters["lines_ms"] = median(of_lines);
}

void add(const Case& c) {
    const std::string name =
        c.lines.name + (c.backward ? "/both/" : "/forward/") + c.policy + "/T:" + std::to_string(c.positions);
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { compare(state, c); })
        ->UseManualTime()
        ->Iterations(option("BENCH_CALLS", 9))
        ->Unit(benchmark::kMillisecond);
}

}  // namespace
}  // namespace mantissa::on_cpu

int main(int argc, char** argv) {
    using namespace mantissa::on_cpu;
    const std::int64_t longest = option("BENCH_POSITIONS", 1024);
    for (const char* const policy : {"fp32", "bf16"})
        for (const Lines& lines : all_lines())
            for (const bool backward : {false, true})
                for (std::int64_t positions = 16; positions <= longest; positions *= 2)
                    add({lines, positions, backward, policy});
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
