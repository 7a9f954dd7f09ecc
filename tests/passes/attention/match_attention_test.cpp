// The pass that finds attention on whole graphs, and when the pipeline keeps what it finds.
#include "mantissa/passes/attention/match_attention.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/pipeline.h"
#include "tests/passes/small_gpt2.h"
#include "tests/support/attention_graphs.h"
#include "tests/support/count_nodes.h"
#include "tests/support/random_draws.h"
#include "tests/support/random_graph.h"

namespace mantissa {
namespace {

using namespace testing::attending;
using testing::count;

TEST(MatchAttention, ShowsWhatItDoes) {
    Given g;
    const Tensor q = g.q(), k = g.k(), v = g.v();
    g.graph.add_result("y", matmul(softmax(g.masked(g.scores(q, k) / root)), v).value());
    EXPECT_EQ(print(match_attention(g.graph).graph),
              "%0: f32[2, 3, 5, 4] = input() {dtype=f32, name=q, shape=[2, 3, 5, 4]}\n"
              "%1: f32[2, 3, 5, 4] = input() {dtype=f32, name=k, shape=[2, 3, 5, 4]}\n"
              "%2: f32[2, 3, 5, 4] = input() {dtype=f32, name=v, shape=[2, 3, 5, 4]}\n"
              "%3: f32[2, 3, 5, 4], f32[2, 3, 5] = attention(%q, %k, %v) {causal=true, scale=0.5}\n"
              "result y = %3.0\n");
}

TEST(MatchAttention, KeepsMeaningOfRandomGraphs) {
    // They hold softmaxes and products, hardly attention: nothing may change.
    for (int seed = 0, draws = testing::random_draws(300); seed < draws; ++seed) {
        const testing::RandomGraph random(static_cast<std::uint64_t>(seed));
        const AttentionMatch match = match_attention(random.graph);
        verify(match.graph, "match_attention");
        if (match.matched == 0) {
            ASSERT_EQ(print(match.graph), print(random.graph)) << "seed " << seed;
        }
    }
}

TEST(MatchAttention, FindsAllLayersOfGpt2) {
    Graph graph;
    Value loss = testing::traced_gpt2(testing::small_gpt2(3, 8, 11), {2, 7})(graph).value();
    AttentionMatch match = match_attention(graph, {&loss, 1});
    EXPECT_EQ(match.matched, 3);
    EXPECT_TRUE(match.refused.empty());
    EXPECT_EQ(count(match.graph, "softmax") + count(match.graph, "iota"), 0);
    EXPECT_EQ(match.graph.node(loss.node).op->name, "cross_entropy");
    // The origin of the product that each replaces.
    for (std::size_t id = 0; id < match.graph.size(); ++id) {
        const Node& node = match.graph.node(static_cast<NodeId>(id));
        if (node.op->name == "attention") {
            EXPECT_EQ(node.origin.scope.substr(1), "." + node.origin.scope.substr(2));
            EXPECT_TRUE(node.origin.scope.ends_with(".attn")) << node.origin.scope;
        }
    }
}

TEST(MatchAttention, IsAPassOfThePipelineThatIsAskedFor) {
    const auto model = [](Graph& graph) {
        const State weights{.name = "w", .type = {DType::f32, {1, 2, 6, 4}}, .initializer = {}};
        const Tensor w(graph, graph.add_state(weights));
        const Tensor y = matmul(softmax(matmul(w, w, {.transpose_b = true})), w);
        return sum(y, {0, 1, 2, 3}) + sum(softmax(w), {0, 1, 2, 3});
    };
    const auto update = [](Graph& graph, Tensor loss, const std::vector<ParameterGradient>& gradients) {
        graph.add_result("loss", loss.value());
        graph.add_update(gradients[0].state, gradients[0].gradient.value());
    };
    const BuiltGraph without = build_training_step(model, update);
    EXPECT_EQ(count(without.graph, "attention"), 0);
    EXPECT_TRUE(without.refused.empty());
    const BuiltGraph with = build_training_step(model, update, {.match_attention = true});
    EXPECT_EQ(count(with.graph, "attention"), 1);
    EXPECT_EQ(count(with.graph, "attention_grad"), 1);
    ASSERT_EQ(with.refused.size(), 1u);
    EXPECT_EQ(with.refused[0].text(), "softmax: the weights go into 'sum', not into a product with values");
    // The same loss, and the same gradient by either way.
    const ReferenceFeed feed{{"w", testing::values_of(testing::f32({1, 2, 6, 4}), 3)}};
    const ReferenceRun expected(without.graph, feed), got(with.graph, feed);
    EXPECT_NEAR(got.result("loss").values[0], expected.result("loss").values[0], 1e-13);
    const std::vector<double> a = got.next(feed).at("w"), b = expected.next(feed).at("w");
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-13);
}

TEST(MatchAttention, StaysWhereTheDeviceRunsItOrItsGradientNot) {
    const auto model = [](Graph& graph) {
        const auto state = [&](const char* name, Shape shape) {
            return Tensor(graph,
                          graph.add_state({.name = name, .type = {DType::f32, shape}, .initializer = {}}));
        };
        const Tensor w = state("w", {1, 2, 6, 4}), scale = state("scale", {2, 1, 1});
        const auto scores = [&] { return matmul(w, w, {.transpose_b = true}); };
        return sum(matmul(softmax(scores() * scale), w), {0, 1, 2, 3}) +
               sum(matmul(softmax(scores() * 0.5), w), {0, 1, 2, 3});
    };
    const auto update = [](Graph& graph, Tensor loss, const std::vector<ParameterGradient>& gradients) {
        graph.add_result("loss", loss.value());
        for (const ParameterGradient& each : gradients) graph.add_update(each.state, each.gradient.value());
    };
    for (const char* const without : {"attention", "attention_grad"}) {
        const PipelineOptions options{.match_attention = true};
        const Machine machine{.kernel_of = [&](const Graph&, const Node& node) {
            const bool has = node.op->name != without || !node.attributes.has("score");
            return KernelAnswer{.why_none = has ? "" : "no time"};
        }};
        const BuiltGraph built = build_training_step(model, update, options, machine);
        EXPECT_EQ(count(built.graph, "attention"), 1);
        EXPECT_EQ(count(built.graph, "attention_grad"), 1);
        ASSERT_EQ(built.refused.size(), 1u);
        const bool of_gradient = without == std::string("attention_grad");
        EXPECT_EQ(built.refused[0].reason,
                  fmt::format("the device has no kernel for {}attention of f32 and of such a score: no time",
                              of_gradient ? "the gradient of " : ""));
    }
}

/// A step of one attention over so many positions, of heads of 4, where the machine gives these times to
/// attention and its gradient.
BuiltGraph with_times(std::int64_t positions, std::optional<TimeBesideParts> forward,
                      std::optional<TimeBesideParts> backward, bool fuse = true) {
    const auto model = [&](Graph& graph) {
        const State weights{.name = "w", .type = {DType::f32, {1, 2, positions, 4}}, .initializer = {}};
        const Tensor w(graph, graph.add_state(weights));
        return sum(matmul(softmax(matmul(w, w, {.transpose_b = true})), w), {0, 1, 2, 3});
    };
    const auto update = [](Graph& graph, Tensor loss, const std::vector<ParameterGradient>& gradients) {
        graph.add_result("loss", loss.value());
        graph.add_update(gradients[0].state, gradients[0].gradient.value());
    };
    const Machine machine{.kernel_of = [=](const Graph&, const Node& node) {
        return KernelAnswer{.time = node.op->name == "attention" ? forward : backward};
    }};
    return build_training_step(model, update, {.match_attention = true, .fuse = fuse}, machine);
}

TEST(MatchAttention, StaysWhereItsLinesTakeLessTimeWithTheFigures) {
    const TimeBesideParts forward{"a kernel", 3000, 2000}, backward{"a kernel", 9000, 4000};
    const BuiltGraph built = with_times(6, forward, backward);
    EXPECT_EQ(count(built.graph, "attention"), 0);
    ASSERT_FALSE(built.refused.empty());
    EXPECT_EQ(built.refused[0].pass, "match_attention");
    EXPECT_EQ(
        built.refused[0].text(),
        "attention: as one operation it takes 2.0 times as long as its lines: about 12.0 us of one thread "
        "beside 6.0 for 6 x 6 scores of heads of 4, forward and backward, by a kernel");
}

TEST(MatchAttention, IsMadeWhereItLosesNothingOrNobodyMeasuredOrScoresAreTheLargerMemory) {
    const TimeBesideParts slow{"a kernel", 9000, 4000}, even{"a kernel", 4990, 4000};
    struct {
        const char* what;
        BuiltGraph built;
        int made;
    } const cases[] = {{"both lose", with_times(6, slow, slow), 0},
                       {"less than a fourth more", with_times(6, even, even), 1},
                       {"no figures", with_times(6, std::nullopt, std::nullopt), 1},
                       {"no figures of the gradient", with_times(6, slow, std::nullopt), 1},
                       {"lines that are not fused", with_times(6, slow, slow, false), 1},
                       {"as many scores as other elements", with_times(16, slow, slow), 0},
                       {"more scores than other elements", with_times(17, slow, slow), 1}};
    for (const auto& each : cases) {
        EXPECT_EQ(count(each.built.graph, "attention"), each.made) << each.what;
        const auto refused = std::ranges::count(each.built.refused, "match_attention", &PassRefusal::pass);
        EXPECT_EQ(refused, each.made == 0 ? 1 : 0) << each.what;
    }
}

}  // namespace
}  // namespace mantissa
