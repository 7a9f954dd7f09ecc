// The fused linear cross-entropy: found under every policy, with the same loss and gradients; what does not
// fit stays, with a reason.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/fuse_linear_cross_entropy.h"
#include "mantissa/passes/pipeline.h"
#include "tests/passes/small_gpt2.h"
#include "tests/support/count_nodes.h"
#include "tests/support/op_cases.h"
#include "tests/support/show_gradients.h"

namespace mantissa {
namespace {

using testing::count;
using testing::show_gradients;

constexpr std::int64_t classes = 13;
const Shape text_shape{2, 5}, logits_shape{2, 5, classes};
/// Below 0: targets that a counted loss ignores.
constexpr std::int64_t min_target = -6;

const nn::Gpt2Config gpt2 = testing::small_gpt2(1, 8, classes);

Tensor quarter_of_loss(Graph& graph) {
    const auto [tokens, targets] = testing::input_text(graph, text_shape);
    // As a micro-batch has it.
    return nn::gpt2_loss(gpt2, tokens, targets) * 0.25;
}

/// Without the targets that are below 0.
Tensor trace_counted(Graph& graph) {
    const auto [tokens, targets] = testing::input_text(graph, text_shape);
    return counted_cross_entropy(nn::gpt2_logits(gpt2, tokens), targets);
}

const State loss_scale{
    .kind = State::Kind::optimizer, .name = "scale", .type = {DType::f32, {}}, .initializer = {}};

BuiltGraph step(const std::string& policy, bool chunked, Tensor (*traced)(Graph&) = quarter_of_loss) {
    PipelineOptions options;
    options.policy = find_policy(policy);
    options.seed = [](Graph& graph) { return Tensor(graph, graph.add_state(loss_scale)); };
    options.fuse_linear_cross_entropy = chunked;
    return build_training_step(traced, show_gradients, options);
}

const testing::Operand counted_targets{{DType::i32, text_shape}, testing::Values::index, classes, min_target};

ReferenceFeed feed_of_loss(const Graph& graph, bool counted) {
    ReferenceFeed feed{{"tokens", testing::values_of(testing::ids(text_shape, classes), 1)},
                       {"targets", testing::values_of(testing::ids(text_shape, classes), 2)}};
    if (counted) feed["targets"] = testing::values_of(counted_targets, 2);
    std::uint32_t which = 3;
    for (const State& state : graph.states()) {
        std::vector<double> values = testing::values_of({state.type}, which++);
        for (double& x : values) x = 0.5 * x;
        feed[state.name] = values;
    }
    feed["scale"] = {3};
    feed["parts"] = testing::values_of(testing::f32(logits_shape, testing::Values::positive), 3);
    return feed;
}

/// The largest difference of a result, in units of the larger result's largest element.
double relative_difference(const Graph& a, const Graph& b, bool counted = false) {
    const ReferenceFeed feed = feed_of_loss(a, counted);
    const ReferenceRun x(a, feed), y(b, feed);
    double worst = 0;
    for (const Result& result : a.results()) {
        const std::vector<double>&expected = x.result(result.name).values,
              &got = y.result(result.name).values;
        EXPECT_EQ(got.size(), expected.size()) << result.name;
        double largest = 0, difference = 0;
        for (std::size_t i = 0; i < expected.size(); ++i) {
            largest = std::max(largest, std::abs(expected[i]));
            const double here = std::abs(got[i] - expected[i]);
            difference = here <= difference ? difference : here;  // a NaN stays
        }
        worst = difference / largest <= worst ? worst : difference / largest;
    }
    return worst;
}

TEST(FuseLinearCrossEntropy, IsFoundUnderEveryPolicyAndKeepsLossAndGradients) {
    // Casts round logits and their gradients to 8 or 11 bits, the definition does not: relative to the
    // largest gradient some roundings of 2^-9 or 2^-12 for some ten logits of size one.
    const std::pair<const char*, double> cases[] = {
        {"fp32", 1e-13}, {"tf32", 1e-13}, {"bf16", 16 * 0x1p-9}, {"fp16", 16 * 0x1p-12}};
    for (const auto& [policy, tolerance] : cases) {
        const BuiltGraph whole = step(policy, false), chunked = step(policy, true);
        verify(chunked.graph, "fuse_linear_cross_entropy");
        EXPECT_TRUE(chunked.refused.empty()) << policy;
        EXPECT_EQ(count(chunked.graph, "linear_cross_entropy"), 1) << policy;
        EXPECT_EQ(count(chunked.graph, "cross_entropy") + count(chunked.graph, "cross_entropy_grad"), 0);
        EXPECT_EQ(count(chunked.graph, "matmul"), count(whole.graph, "matmul") - 3) << policy;
        for (std::size_t id = 0; id < chunked.graph.size(); ++id)
            for (const Type& type : chunked.graph.node(static_cast<NodeId>(id)).outputs)
                EXPECT_NE(type.shape.elements(), logits_shape.elements()) << policy << ": logits";
        EXPECT_LE(relative_difference(whole.graph, chunked.graph), tolerance) << policy;
    }
    // The tolerance bites: another seed is another gradient.
    const Graph whole = step("fp32", false).graph;
    PipelineOptions other{.fuse_linear_cross_entropy = true};
    other.seed = [](Graph& graph) {
        graph.add_state(loss_scale);
        return constant(graph, 3.01);
    };
    EXPECT_GT(relative_difference(whole, build_training_step(quarter_of_loss, show_gradients, other).graph),
              1e-3);
}

Tensor trace_with_frozen_table(Graph& graph) {
    graph.freeze({"wte.weight"});
    return quarter_of_loss(graph);
}

TEST(FuseLinearCrossEntropy, FrozenWeightsHaveNoGradient) {
    for (const auto& [policy, tolerance] : {std::pair{"fp32", 1e-13}, {"bf16", 16 * 0x1p-9}}) {
        const BuiltGraph whole = step(policy, false, trace_with_frozen_table),
                         chunked = step(policy, true, trace_with_frozen_table);
        EXPECT_TRUE(chunked.refused.empty()) << policy;
        for (NodeId id = 0; id < chunked.graph.end(); ++id) {
            const Node& node = chunked.graph.node(id);
            if (node.op->name != "linear_cross_entropy") continue;
            EXPECT_EQ(node.outputs.size(), 2u) << "the loss and dx";
            EXPECT_EQ(node.op->flops(chunked.graph.input_types(node), node.outputs, node.attributes),
                      2 * 5 * classes * (4 * 8 + 27));
        }
        EXPECT_EQ(count(chunked.graph, "linear_cross_entropy"), 1) << policy;
        EXPECT_LE(relative_difference(whole.graph, chunked.graph), tolerance) << policy;
    }
}

TEST(FuseLinearCrossEntropy, WhatIsIgnoredStaysSo) {
    const std::vector<double> targets = testing::values_of(counted_targets, 2);
    const auto ignored = std::ranges::count_if(targets, [](double target) { return target < 0; });
    EXPECT_GT(ignored, 0);
    EXPECT_LT(ignored, text_shape.elements());
    const BuiltGraph whole = step("fp32", false, trace_counted), chunked = step("fp32", true, trace_counted);
    EXPECT_TRUE(chunked.refused.empty());
    EXPECT_EQ(count(chunked.graph, "linear_cross_entropy"), 1);
    EXPECT_LE(relative_difference(whole.graph, chunked.graph, true), 1e-13);
    const Graph forward = build_evaluation(trace_counted, {.fuse_linear_cross_entropy = true}).graph;
    EXPECT_EQ(count(forward, "linear_cross_entropy"), 1);
    EXPECT_LE(relative_difference(build_evaluation(trace_counted).graph, forward, true), 1e-13);
}

/// A loss with what recipes add to it.
template <int recipe>
Tensor trace_recipe(Graph& graph) {
    const auto [tokens, targets] = testing::input_text(graph, text_shape);
    const Tensor logits = nn::gpt2_logits(gpt2, tokens);
    if (recipe == 4) {
        const Tensor parts(graph, graph.add_input("parts", {DType::f32, logits_shape}));
        return cross_entropy(logits, parts, CrossEntropyOptions{.label_smoothing = 0.1});
    }
    std::vector<double> weights;
    for (std::int64_t i = 0; i < classes; ++i) weights.push_back(static_cast<double>(1 + i % 4));
    CrossEntropyOptions options;
    if (recipe == 0) options.class_weights = literal(graph, weights, DType::f32, {classes});
    if (recipe == 1) options = {.label_smoothing = 0.1, .ignore_index = 3};
    if (recipe == 2) options = {.ignore_index = 3, .reduction = Reduction::sum};
    if (recipe == 3) {
        options = {.class_weights = literal(graph, weights, DType::f32, {classes}),
                   .label_smoothing = 0.2,
                   .reduction = Reduction::none};
        const Tensor row = cast(iota(graph, text_shape, 1), DType::f32);
        return sum(cross_entropy(logits, targets, options) * (row + 1.0));
    }
    return cross_entropy(logits, targets, options);
}

/// The bytes of all that has a number for each row and class and follows from a parameter, as targets do not.
std::int64_t bytes_of_logits(const Graph& graph) {
    std::int64_t bytes = 0;
    std::vector<bool> follows(graph.size());
    for (NodeId id = 0; id < graph.end(); ++id) {
        const Node& node = graph.node(id);
        const auto at = static_cast<std::size_t>(id);
        follows[at] = node.op->name == "state";
        for (const Value& input : node.inputs)
            follows[at] = follows[at] || follows[static_cast<std::size_t>(input.node)];
        for (const Type& type : node.outputs)
            if (follows[at] && type.shape.elements() == logits_shape.elements()) bytes += type.bytes();
    }
    return bytes;
}

TEST(FuseLinearCrossEntropy, WeightsSmoothingIgnoredRowsAndLossesByRowsLeaveNoLogits) {
    Tensor (*const recipes[])(Graph&) = {trace_recipe<0>, trace_recipe<1>, trace_recipe<2>, trace_recipe<3>,
                                         trace_recipe<4>};
    for (const auto recipe : recipes)
        for (const auto& [policy, tolerance] :
             {std::pair("fp32", 1e-13), std::pair("bf16", 24 * 0x1p-9), std::pair("fp16", 24 * 0x1p-12)}) {
            const BuiltGraph whole = step(policy, false, recipe), chunked = step(policy, true, recipe);
            const auto which = fmt::format("recipe {} in {}", &recipe - recipes, policy);
            verify(chunked.graph, "fuse_linear_cross_entropy");
            EXPECT_TRUE(chunked.refused.empty()) << which;
            EXPECT_EQ(count(chunked.graph, "linear_cross_entropy"), 1) << which;
            EXPECT_LE(relative_difference(whole.graph, chunked.graph), tolerance) << which;
            EXPECT_EQ(bytes_of_logits(chunked.graph), 0) << which;
            EXPECT_GE(bytes_of_logits(whole.graph), 2 * logits_shape.elements() * 2) << which;
        }
    // Another recipe is another loss.
    EXPECT_GT(relative_difference(step("fp32", false, trace_recipe<1>).graph,
                                  step("fp32", true, trace_recipe<2>).graph),
              1e-2);
}

/// A loss whose rows' weights follow from the losses themselves: its gradients come after it.
Tensor trace_focal(Graph& graph) {
    const auto [tokens, targets] = testing::input_text(graph, text_shape);
    const Tensor losses =
        cross_entropy(nn::gpt2_logits(gpt2, tokens), targets, {.reduction = Reduction::none});
    return mean(losses * losses);
}

TEST(FuseLinearCrossEntropy, LossesByRowsWhoseGradientsFollowFromThemStayWithAReason) {
    const BuiltGraph chunked = step("fp32", true, trace_focal);
    EXPECT_EQ(count(chunked.graph, "linear_cross_entropy"), 0);
    ASSERT_EQ(chunked.refused.size(), 1u);
    EXPECT_EQ(chunked.refused[0].reason, "its gradient is multiplied by what depends on a loss");
}

TEST(FuseLinearCrossEntropy, TakesTheWeightsGradientAsTheProductWroteIt) {
    const Graph graph = step("bf16", true).graph;
    for (std::size_t id = 0; id < graph.size(); ++id) {
        const Node& node = graph.node(static_cast<NodeId>(id));
        if (node.op->name != "linear_cross_entropy") continue;
        EXPECT_EQ(graph.type(node.inputs[0]).dtype, DType::bf16);
        EXPECT_EQ(graph.type(node.inputs[1]).dtype, DType::bf16);
        EXPECT_EQ(node.outputs[1].dtype, DType::bf16);
        EXPECT_EQ(node.outputs[2].dtype, DType::f32);
        EXPECT_EQ(node.origin.scope, "lm_head");
        EXPECT_EQ(node.origin.rule, "bf16 list: matmul");
    }
}

TEST(FuseLinearCrossEntropy, OfAForwardPassHasNoSeedAndNoGradients) {
    const Graph whole = build_evaluation(quarter_of_loss).graph;
    const Graph chunked = build_evaluation(quarter_of_loss, {.fuse_linear_cross_entropy = true}).graph;
    EXPECT_EQ(count(chunked, "linear_cross_entropy"), 1);
    EXPECT_EQ(count(chunked, "matmul"), count(whole, "matmul") - 1);
    EXPECT_LE(relative_difference(whole, chunked), 1e-13);
}

TEST(FuseLinearCrossEntropy, IsIdempotent) {
    const Graph once = step("bf16", true).graph;
    const ChunkedLoss twice = fuse_linear_cross_entropy(once);
    EXPECT_EQ(twice.matched, 0);
    EXPECT_TRUE(twice.refused.empty());
    EXPECT_EQ(print(twice.graph), print(once));
}

/// A linear layer over N = 6 rows of C = 4, and what becomes of its logits.
struct UnfusedLoss {
    const char* reason;
    bool x_is_parameter = true, transposed = true;
    Tensor (*loss)(Graph&, Tensor x, Tensor w, Tensor targets) = nullptr;
};

Tensor bias(Graph& graph) { return constant(graph, 1.0, DType::f32, {7}); }

Tensor logits_of(Tensor x, Tensor w) { return matmul(x, w, {.transpose_b = true}); }

const UnfusedLoss unfused_losses[] = {
    {.reason = "the logits are used by 'sum' too",
     .loss =
         [](Graph&, Tensor x, Tensor w, Tensor t) {
             const Tensor logits = logits_of(x, w);
             return cross_entropy(logits, t) + sum(logits, {0, 1});
         }},
    {.reason = "the logits are used as a result too",
     .loss =
         [](Graph& graph, Tensor x, Tensor w, Tensor t) {
             const Tensor logits = logits_of(x, w);
             graph.add_result("logits", logits.value());
             return cross_entropy(logits, t);
         }},
    {.reason = "the logits are used by 'reshape' too",
     .loss =
         [](Graph& graph, Tensor x, Tensor w, Tensor t) {
             const Tensor logits = logits_of(x, w);
             graph.add_result("logits", reshape(logits, {-1}).value());
             return cross_entropy(reshape(logits, {2, 3, 7}), reshape(t, {2, 3}));
         }},
    {.reason = "a bias is added to the logits",
     .loss =
         [](Graph& graph, Tensor x, Tensor w, Tensor t) {
             return cross_entropy(matmul(x, w, {.transpose_b = true, .bias = bias(graph)}), t);
         }},
    {.reason = "the logits come from 'mul', not from a product with weights",
     .loss = [](Graph&, Tensor x, Tensor w, Tensor t) { return cross_entropy(logits_of(x, w) * 2.0, t); }},
    {.reason = "the logits come from 'add', not from a product with weights",
     .loss = [](Graph& graph, Tensor x, Tensor w,
                Tensor t) { return cross_entropy(logits_of(x, w) + bias(graph), t); }},
    {.reason = "the weights lie as [C, V] f32[4, 7], not as [V, C]",
     .transposed = false,
     .loss = [](Graph&, Tensor x, Tensor w, Tensor t) { return cross_entropy(matmul(x, w), t); }},
    {.reason = "its gradient is multiplied by what depends on a loss",
     .loss =
         [](Graph&, Tensor x, Tensor w, Tensor t) {
             const Tensor loss = cross_entropy(logits_of(x, w), t);
             return loss * loss;
         }},
    {.reason = "the gradient of x is not asked for",
     .x_is_parameter = false,
     .loss = [](Graph&, Tensor x, Tensor w, Tensor t) { return cross_entropy(logits_of(x, w), t); }},
    {.reason = "the logits [6, 7] are reshaped to [42, 1]",
     .loss =
         [](Graph& graph, Tensor x, Tensor w, Tensor) {
             const Tensor zeros = cast(constant(graph, 0.0, DType::f32, {42}), DType::i32);
             return cross_entropy(reshape(logits_of(x, w), {42, 1}), zeros);
         }},
    {.reason = "f32 logits are cast to bf16",
     .loss = [](Graph&, Tensor x, Tensor w,
                Tensor t) { return cross_entropy(cast(logits_of(x, w), DType::bf16), t); }},
};

TEST(FuseLinearCrossEntropy, LeavesNearMissesAsTheyWereAndSaysWhy) {
    for (const UnfusedLoss& miss : unfused_losses) {
        Graph graph;
        const Type x_type{DType::f32, {6, 4}},
            w_type{DType::f32, miss.transposed ? Shape{7, 4} : Shape{4, 7}};
        const Tensor x(graph, miss.x_is_parameter
                                  ? graph.add_state({.name = "x", .type = x_type, .initializer = {}})
                                  : graph.add_input("x", x_type));
        const Tensor w(graph, graph.add_state({.name = "w", .type = w_type, .initializer = {}}));
        const Tensor t(graph, graph.add_input("targets", {DType::i32, {6}}));
        const Tensor loss = miss.loss(graph, x, w, t);
        std::vector<Value> kept{loss.value()};
        for (const ParameterGradient& parameter : differentiate(graph, loss))
            kept.push_back(parameter.gradient.value());
        const std::vector<Value> before = kept;
        const ChunkedLoss chunked = fuse_linear_cross_entropy(graph, kept);
        ASSERT_EQ(chunked.refused.size(), 1u) << miss.reason;
        EXPECT_EQ(chunked.refused[0].text(), std::string("cross_entropy: ") + miss.reason);
        EXPECT_EQ(print(chunked.graph), print(graph)) << miss.reason;
        EXPECT_EQ(kept, before) << miss.reason;
    }
}

}  // namespace
}  // namespace mantissa
