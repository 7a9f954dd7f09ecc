// Loops over time as they are planned and run: with every pass, at every level, against the reference; what
// they keep in memory; and that their plan does not grow with their steps.
#include <gtest/gtest.h>

#include <cmath>

#include "mantissa/nn/layers.h"
#include "mantissa/passes/pipeline.h"
#include "tests/support/op_case.h"
#include "tests/support/run_graph.h"
#include "tests/support/show_gradients.h"

namespace mantissa {
namespace {

using testing::show_gradients;

constexpr std::int64_t B = 3, C = 5, H = 8;

template <bool gated>
Tensor loss_of(Graph& graph, std::int64_t steps, std::int64_t batch) {
    const Tensor x(graph, graph.add_input("x", {DType::f32, {batch, steps, C}}));
    const nn::RecurrentOptions options{.hidden = H, .layers = 2};
    const Tensor y = gated ? nn::gru(x, "rnn", options) : nn::lstm(x, "rnn", options);
    return mean(y * y);
}

BuiltGraph step_of(bool gated, std::int64_t steps, const std::string& policy, Device& device, bool passes,
                   std::int64_t batch = B) {
    PipelineOptions options = passes ? all_passes(device.target(), find_policy(policy))
                                     : PipelineOptions{.policy = find_policy(policy)};
    options.lay_out = false;  // copies of parameters would be states to be made first
    const auto model = [&](Graph& graph) {
        return gated ? loss_of<true>(graph, steps, batch) : loss_of<false>(graph, steps, batch);
    };
    return build_training_step(model, show_gradients, options, machine_for_passes(device));
}

ReferenceFeed feed_of(const Graph& graph, std::int64_t steps, std::int64_t batch = B,
                      std::uint32_t which = 1) {
    ReferenceFeed feed{{"x", testing::values_of(testing::f32({batch, steps, C}), which++)}};
    for (const State& state : graph.states()) {
        std::vector<double> values = testing::values_of({state.type}, which++);
        for (double& x : values) x *= 0.3;
        feed[state.name] = values;
    }
    return feed;
}

/// A plan with its memory, to be run on one feed after another.
class Planned {
  public:
    Planned(const BuiltGraph& built, Device& device)
        : plan_(built.graph, device),
          state_(device, built.graph.states()),
          arena_(testing::nan_memory(device, plan_.memory().arena_bytes)),
          execution_(plan_, state_, *arena_) {}

    std::vector<std::vector<std::byte>> run(const ReferenceFeed& feed) {
        for (const State& each : plan_.graph().states())
            state_.write(each.name, testing::stored(feed.at(each.name), each.type.dtype));
        execution_.set_input("x", testing::stored(feed.at("x"), DType::f32));
        execution_.run();
        std::vector<std::vector<std::byte>> got;
        for (const Result& result : plan_.graph().results())
            got.push_back(execution_.read_result(result.name));
        return got;
    }

    /// The largest difference of a result from the reference's, in units of that result's largest element.
    double worst_difference(const Graph& expected, const ReferenceFeed& feed);

  private:
    Plan plan_;
    StateBlock state_;
    std::unique_ptr<DeviceMemory> arena_;
    Execution execution_;
};

double Planned::worst_difference(const Graph& expected, const ReferenceFeed& feed) {
    const ReferenceRun reference(expected, feed);
    const std::vector<std::vector<std::byte>> got = run(feed);
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const std::vector<double>& wanted = reference.result(plan_.graph().results()[i].name).values;
        double largest = 0, difference = 0;
        for (std::size_t j = 0; j < wanted.size(); ++j) {
            const double x = load_as_f64(got[i].data(), DType::f32, static_cast<std::int64_t>(j));
            largest = std::max(largest, std::abs(wanted[j]));
            const double here = std::abs(x - wanted[j]);
            difference = here <= difference ? difference : here;  // a NaN stays
        }
        worst = difference / largest <= worst ? worst : difference / largest;
    }
    return worst;
}

TEST(Loops, StepsOfRecurrentNetworksAreTheReferencesAtEveryLevel) {
    constexpr std::int64_t steps = 7;
    for (const std::string& level : testing::levels()) {
        const auto device = testing::device_at(level);
        const bool compiles = device->target().cannot_compile.empty();
        for (const bool gated : {false, true}) {
            const BuiltGraph plain = step_of(gated, steps, "fp32", *device, false);
            const ReferenceFeed feed = feed_of(plain.graph, steps);
            for (const bool passes : {false, true}) {
                SCOPED_TRACE(level + (gated ? " gru" : " lstm") + (passes ? " with passes" : ""));
                if (passes && !compiles) continue;
                const BuiltGraph built = step_of(gated, steps, "fp32", *device, passes);
                EXPECT_LT(Planned(built, *device).worst_difference(plain.graph, feed), 2e-5);
            }
            if (!compiles) continue;
            // Products of inputs are of fewer bits, the loop is not. The bounds are some units of rounding.
            for (const auto& [policy, least, most] :
                 {std::tuple{"bf16", 1e-4, 0.05}, {"fp16", 1e-5, 0.003}, {"tf32", 2e-6, 0.003}}) {
                SCOPED_TRACE(level + (gated ? " gru " : " lstm ") + policy);
                const BuiltGraph low = step_of(gated, steps, policy, *device, true);
                const double far = Planned(low, *device).worst_difference(plain.graph, feed);
                EXPECT_LT(far, most);
                EXPECT_GT(far, least);
            }
        }
    }
}

/// Rows enough that matrices are packed, once a loop: each run packs those that it is given.
TEST(Loops, PackTheirMatricesAnewInEachRun) {
    constexpr std::int64_t steps = 3, batch = 20;
    for (const std::string& level : testing::levels()) {
        const auto device = testing::device_at(level);
        const bool compiles = device->target().cannot_compile.empty();
        for (const bool gated : {false, true}) {
            SCOPED_TRACE(level + (gated ? " gru" : " lstm"));
            const BuiltGraph plain = step_of(gated, steps, "fp32", *device, false, batch);
            Planned planned(step_of(gated, steps, "fp32", *device, compiles, batch), *device);
            const ReferenceFeed feed = feed_of(plain.graph, steps, batch);
            const ReferenceFeed other = feed_of(plain.graph, steps, batch, 101);
            EXPECT_LT(planned.worst_difference(plain.graph, feed), 2e-5);
            EXPECT_LT(planned.worst_difference(plain.graph, other), 2e-5);
            EXPECT_LT(planned.worst_difference(plain.graph, feed), 2e-5);
        }
    }
}

/// Outputs that a layer keeps for its gradient alone are not made where there is none.
TEST(Loops, GiveNoOutputThatNobodyReads) {
    const auto device = testing::device_at(testing::levels().back());
    const PipelineOptions options = all_passes(device->target(), find_policy("fp32"));
    const BuiltGraph forward = build_evaluation([](Graph& graph) { return loss_of<false>(graph, 4, B); },
                                                options, machine_for_passes(*device));
    int loops = 0;
    for (NodeId id = 0; id < forward.graph.end(); ++id)
        if (const Node& node = forward.graph.node(id); node.op->name == "scan") {
            ++loops;
            EXPECT_EQ(node.outputs.size(), 2u);
        }
    EXPECT_EQ(loops, 2);
}

/// Bytes of all values that grow with the steps by so many for a step, besides those of the loops' own: the
/// graph and what the loop computes inside do not grow at all.
TEST(Loops, GrowWithTheirStepsByWhatTheyKeepAlone) {
    const auto device = testing::device_at(testing::levels().back());
    if (!device->target().cannot_compile.empty()) GTEST_SKIP() << "no LLVM: no passes that fuse";
    const auto arena = [&](std::int64_t steps) {
        const Plan plan(step_of(false, steps, "fp32", *device, true).graph, *device);
        return std::pair(plan.memory().arena_bytes, plan.nodes().size());
    };
    const auto [few, nodes] = arena(256);
    const auto [twice, same_nodes] = arena(512);
    const auto [again, the_same] = arena(768);
    EXPECT_EQ(nodes, same_nodes);
    EXPECT_EQ(same_nodes, the_same);
    // Each of two layers keeps h and c, and the sums of its gates (4 H) in place of its products of inputs.
    // Beside them are the gradients of one layer's sums, and no more than H for all else.
    const std::int64_t of_step = 256 * B * H * static_cast<std::int64_t>(sizeof(float));
    EXPECT_LE(twice - few, (2 * (2 + 4) + 4 + 1) * of_step);
    EXPECT_LE(again - twice, (2 * (2 + 4) + 4 + 1) * of_step);
}

}  // namespace
}  // namespace mantissa
