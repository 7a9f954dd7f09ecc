// Attention with other scores than the scaled product, compared with the plain causal one: windows, prefixes,
// documents, capped scores, biases, tables of distances, learned scales, dropped weights; forward, and with
// backward.
//
// Samples of a form and of plain causal attention of the same shape alternate. Each is the whole operation in
// a plan, on the unit of the chosen level. `rate`: visible scores a second over the causal one's, the median
// of the samples' ratios; `time`: its time over the causal one's; `visible`: its share of the causal mask's
// pairs; `median_ms`: its own time. Environment: BENCH_THREADS (2), BENCH_CALLS, samples (9). Names are
// FORM/PASS/TYPE/N:heads/T:positions.
#include <benchmark/benchmark.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "mantissa/base/clock.h"
#include "mantissa/base/random.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/attention_score.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/gradient.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/visible_pairs.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/passes/simplify.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"

namespace mantissa::on_cpu {
namespace {

struct Sizes {
    std::int64_t heads, positions;
    DType dtype;

    AttentionExtents extents() const { return {1, heads, positions, positions, 64, heads}; }
};

/// A body, its operands, and its number of visible pairs.
struct Form {
    std::string name;
    std::vector<std::string> axes = {};
    std::vector<DType> types = {};
    std::vector<bool> learned = {};
    bool causal = true, short_documents = false;
    std::function<void(Graph&, Tensor, std::span<const Tensor>)> build = {};  ///< none: plain
    std::function<double(std::int64_t positions)> pairs = {};                 ///< none: by the mask
};

/// The document of a position. Long documents: two in a short text, four of unequal lengths in a long one.
/// Short documents: about four, and about eight. All end within blocks.
std::int64_t document_of(bool are_short, std::int64_t position, std::int64_t positions) {
    const bool short_text = positions < 4096;
    if (are_short) return position / (short_text ? 261 : 1043);
    if (short_text) return position / 599;
    return (position >= 1507) + (position >= 4693) + (position >= 6901);
}

double pairs_of_documents(bool are_short, std::int64_t positions) {
    double pairs = 0;
    std::int64_t first = 0;
    for (std::int64_t i = 0; i < positions; ++i) {
        if (document_of(are_short, i, positions) != document_of(are_short, first, positions)) first = i;
        pairs += static_cast<double>(i - first + 1);
    }
    return pairs;
}

void add_result(Graph& body, const char* name, Tensor x) { body.add_result(name, x.value()); }

Tensor position(Graph& body, Tensor s, int axis) { return iota(body, s.shape(), axis); }

Form window(std::int64_t keys) {
    return {.name = "window " + std::to_string(keys), .build = [=](Graph& body, Tensor s, auto) {
                add_result(body, "score", s);
                add_result(body, "visible",
                           less(position(body, s, 2), position(body, s, 3) + static_cast<double>(keys)));
            }};
}

std::vector<Form> forms(const Sizes& sizes) {
    const std::int64_t T = sizes.positions;
    std::vector<Form> all;
    all.push_back(window(T < 4096 ? 256 : 1024));
    if (T < 4096) all.push_back(window(512));
    all.push_back({.name = "prefix", .causal = false, .build = [=](Graph& body, Tensor s, auto) {
                       add_result(body, "score", s);
                       const Tensor i = position(body, s, 2), j = position(body, s, 3);
                       const Tensor last =
                           maximum(i, constant(body, static_cast<double>(T / 4 - 1), DType::i32));
                       add_result(body, "visible", less_equal(j, last));
                   }});
    for (const bool are_short : {false, true})
        all.push_back(
            {.name = are_short ? "short documents" : "documents",
             .axes = {"bt", "bs"},
             .types = {DType::i32, DType::i32},
             .learned = {false, false},
             .short_documents = are_short,
             .build =
                 [](Graph& body, Tensor s, std::span<const Tensor> x) {
                     add_result(body, "score", s);
                     add_result(body, "visible", equal(x[0], x[1]));
                 },
             .pairs = [=](std::int64_t positions) { return pairs_of_documents(are_short, positions); }});
    all.push_back({.name = "capped", .build = [](Graph& body, Tensor s, auto) {
                       add_result(body, "score", tanh(s / 30.0) * 30.0);
                   }});
    all.push_back({.name = "linear biases",
                   .axes = {"h"},
                   .types = {DType::f32},
                   .learned = {false},
                   .build = [](Graph& body, Tensor s, std::span<const Tensor> x) {
                       const Tensor distance = position(body, s, 3) - position(body, s, 2);
                       add_result(body, "score", s + x[0] * cast(distance, DType::f32));
                   }});
    all.push_back({.name = "table of distances",
                   .axes = {"hr"},
                   .types = {DType::f32},
                   .learned = {true},
                   .build = [](Graph& body, Tensor s, std::span<const Tensor> x) {
                       add_result(body, "score", s + x[0]);
                   }});
    all.push_back({.name = "learned scale",
                   .axes = {"h"},
                   .types = {DType::f32},
                   .learned = {true},
                   .build = [](Graph& body, Tensor s, std::span<const Tensor> x) {
                       add_result(body, "score", s * x[0]);
                   }});
    if (T < 4096)
        all.push_back({.name = "dense bias",
                       .axes = {"hts"},
                       .types = {DType::f32},
                       .learned = {true},
                       .build = [](Graph& body, Tensor s, std::span<const Tensor> x) {
                           add_result(body, "score", s + x[0]);
                       }});
    all.push_back({.name = "dropped weights",
                   .axes = {"", ""},
                   .types = {DType::i64, DType::i64},
                   .learned = {false, false},
                   .build = [](Graph& body, Tensor s, std::span<const Tensor> x) {
                       const Tensor drawn =
                           random_uniform(reshape(x[0], {}), reshape(x[1], {}), 7, s.shape());
                       add_result(body, "score", s);
                       add_result(body, "multiplier",
                                  select(less(drawn, constant(body, 0.1)), constant(body, 0.0),
                                         constant(body, 1 / 0.9)));
                   }});
    return all;
}

/// Runs the graph of one attention, forward or with all gradients, as a plan.
class Run {
  public:
    Run(const Form& form, const Sizes& sizes, bool backward, Device& device)
        : sizes_(sizes), device_(device) {
        build(form, backward);
        plan_ = std::make_unique<Plan>(graph_, device);
        state_ = std::make_unique<StateBlock>(device, plan_->graph().states());
        arena_ = device.allocate(static_cast<std::size_t>(plan_->memory().arena_bytes), "arena");
        execution_ = std::make_unique<Execution>(*plan_, *state_, *arena_);
        std::uint32_t which = 0;
        for (const NodeId id : graph_.inputs()) set_input(graph_.node(id), ++which, form.short_documents);
    }
    double seconds() {
        const Stopwatch watch;
        execution_->run();
        return watch.seconds();
    }
    double pairs() const { return pairs_; }

  private:
    void build(const Form& form, bool backward) {
        const AttentionExtents e = sizes_.extents();
        const Shape heads{1, e.heads, e.queries, e.head_size};
        std::vector<Tensor> x;
        for (const char* const name : {"q", "k", "v"})
            x.emplace_back(graph_, graph_.add_input(name, {sizes_.dtype, heads}));
        AttentionScore score{.operands = form.axes};
        std::vector<Tensor> wrt = x;
        if (form.build) {
            Graph body;
            const Tensor s(body, body.add_input("s", {DType::f32, {1, e.heads, e.queries, e.keys}}));
            std::vector<Tensor> beside;
            for (std::size_t i = 0; i < form.axes.size(); ++i) {
                const std::string name = "x" + std::to_string(i);
                beside.emplace_back(
                    body, body.add_input(name, {form.types[i], score_operand_shape(form.axes[i], e)}));
                x.emplace_back(
                    graph_, graph_.add_input(name, {form.types[i], stored_score_operand(form.axes[i], e)}));
                if (form.learned[i]) wrt.push_back(x.back());
            }
            form.build(body, s, beside);
            score.body = Body(body);
        }
        pairs_ = form.pairs ? form.pairs(sizes_.positions) * static_cast<double>(sizes_.heads)
                            : static_cast<double>(visible_pairs(score, form.causal, e));
        const Attributes attributes = with_score({{"causal", form.causal}, {"scale", 0.125}}, score);
        const Tensor o = call(graph_, "attention", x, attributes)[0];
        graph_.add_result("o", o.value());
        if (!backward) return;
        const Tensor d_o(graph_, graph_.add_input("do", {sizes_.dtype, heads}));
        for (const Tensor& gradient : backpropagate(graph_, {&o, 1}, {&d_o, 1}, wrt))
            graph_.add_result("gradient " + std::to_string(graph_.results().size()), gradient.value());
    }

    void set_input(const Node& node, std::uint32_t which, bool short_documents) {
        const Type& type = node.outputs[0];
        Buffer data(static_cast<std::size_t>(type.bytes()), "benchmark");
        const RandomStream random{.seed = 1, .operation = which};
        for (std::int64_t i = 0; i < type.shape.elements(); ++i) {
            double value = static_cast<double>(random.normal(static_cast<std::uint64_t>(i % 65536)));
            if (type.shape.rank() == 1) value = 1 / static_cast<double>(i + 2);  // by head
            const auto at = static_cast<std::size_t>(i);
            if (type.dtype == DType::i32)
                data.as<std::int32_t>()[at] =
                    static_cast<std::int32_t>(document_of(short_documents, i, sizes_.positions));
            else if (type.dtype == DType::i64)
                data.as<std::int64_t>()[at] = 1;
            else
                store_from_f64(data.data(), type.dtype, i, value);
        }
        execution_->set_input(node.attributes.word("name"), data.as<const std::byte>());
    }

    Sizes sizes_;
    Device& device_;
    Graph graph_;
    double pairs_ = 0;
    std::unique_ptr<Plan> plan_;
    std::unique_ptr<StateBlock> state_;
    std::unique_ptr<DeviceMemory> arena_;
    std::unique_ptr<Execution> execution_;
};

void run(benchmark::State& state, const Form& form, const Sizes& sizes, bool backward) {
    static const auto device = make_cpu_device({.threads = option("BENCH_THREADS", 2)});
    Run causal({.name = "causal"}, sizes, backward, *device), other(form, sizes, backward, *device);
    causal.seconds();
    other.seconds();
    std::vector<double> times, rates, milliseconds;
    for (auto _ : state) {
        const double before = causal.seconds(), seconds = other.seconds();
        const double time = seconds / ((before + causal.seconds()) / 2);
        times.push_back(time);
        rates.push_back(other.pairs() / causal.pairs() / time);
        milliseconds.push_back(1e3 * seconds);
        state.SetIterationTime(seconds);
    }
    state.counters["rate"] = median(rates);
    state.counters["time"] = median(times);
    state.counters["median_ms"] = median(milliseconds);
    state.counters["visible"] = other.pairs() / causal.pairs();
}

void add(const Sizes& sizes) {
    for (const Form& form : forms(sizes))
        for (const bool backward : {false, true}) {
            const std::string name = form.name + (backward ? "/both/" : "/forward/") +
                                     std::string(name_of(sizes.dtype)) + "/N:" + std::to_string(sizes.heads) +
                                     "/T:" + std::to_string(sizes.positions);
            benchmark::RegisterBenchmark(name.c_str(),
                                         [=](benchmark::State& state) { run(state, form, sizes, backward); })
                ->UseManualTime()
                ->Iterations(option("BENCH_CALLS", 9))
                ->Unit(benchmark::kMillisecond);
        }
}

}  // namespace
}  // namespace mantissa::on_cpu

int main(int argc, char** argv) {
    using namespace mantissa;
    for (const DType dtype : {DType::bf16, DType::f32}) {
        on_cpu::add({12, 1024, dtype});
        on_cpu::add({1, 8192, dtype});
    }
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
