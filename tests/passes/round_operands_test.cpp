// Policies below sixteen bits: which operands are rounded, along which axis, from what, and what stays as it
// was.
#include "mantissa/passes/round_operands.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "mantissa/graph/graph.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/numerics/short_formats.h"
#include "mantissa/passes/operand_blocks.h"
#include "mantissa/passes/pipeline.h"
#include "tests/passes/small_gpt2.h"
#include "tests/support/error_of.h"
#include "tests/support/show_gradients.h"

namespace mantissa {
namespace {

const TraceModel two_blocks = testing::traced_gpt2(testing::small_gpt2(2, 8, 7), {1, 5});

BuiltGraph step_under(const char* policy, bool lay_out = false, bool joint_loss = false) {
    return build_training_step(
        two_blocks, testing::show_gradients,
        {.policy = policy, .fuse_linear_cross_entropy = joint_loss, .lay_out = lay_out});
}

/// The axis of an operand along which a product sums.
std::int64_t depth_axis(const Graph& graph, const Node& product, int side) {
    const bool transposed = product.attributes.flag(side == 0 ? "transpose_a" : "transpose_b");
    const int last = graph.type(product.inputs[side]).shape.rank() - 1;
    return side == 0 ? (transposed ? last - 1 : last) : (transposed ? last : last - 1);
}

TEST(RoundOperands, ALayersThreeProductsHaveBothOperandsRoundedAlongTheirDepth) {
    for (const char* policy : {"mxfp8", "mxfp6", "mxfp6-e2m3", "mxfp4", "mxfp4-up"}) {
        const BuiltGraph built = step_under(policy);
        verify(built.graph, policy);
        const OperandBlocks blocks = *find_policy(policy).blocks;
        int rounded = 0, others = 0;
        std::set<Value> read;
        for (NodeId id = 0; id < built.graph.end(); ++id) {
            const Node& node = built.graph.node(id);
            if (node.op->name != "matmul") continue;
            if (node.origin.rule.find(" list: a linear layer's product") == std::string::npos) {
                ++others;
                EXPECT_NE(built.graph.node(node.inputs[0].node).op->name, "round_blocks")
                    << print(built.graph, id);
                continue;
            }
            ++rounded;
            for (const int side : {0, 1}) {
                const Node& operand = built.graph.node(node.inputs[side].node);
                ASSERT_EQ(operand.op->name, "round_blocks") << print(built.graph, id);
                read.insert(operand.inputs[0]);
                EXPECT_EQ(operand.attributes.integer("axis"), depth_axis(built.graph, node, side));
                EXPECT_EQ(operand.attributes.word("element"), limits_of(blocks.element).name);
                EXPECT_EQ(operand.attributes.word("rule"), name_of(blocks.rule));
                EXPECT_EQ(operand.attributes.integer("block"), 32);
                EXPECT_EQ(operand.origin.rule.find(policy), 0u) << operand.origin.rule;
            }
        }
        EXPECT_EQ(rounded, 3 * 4 * 2);  // three products of four layers in each block
        EXPECT_EQ(others, 3 + 6 * 2);   // the head's, and those of attention
        // Each tensor is rounded from what it was: a parameter in FP32, activations and gradients in BF16;
        // never from another rounding.
        for (const Value& value : read) {
            const Node& node = built.graph.node(value.node);
            EXPECT_NE(node.op->name, "round_blocks");
            EXPECT_EQ(built.graph.type(value).dtype, node.op->name == "state" ? DType::f32 : DType::bf16)
                << print(built.graph, value.node);
        }
    }
}

/// The three products of the one layer that a small network rounds: forward, of x, of w.
struct ThreeProducts {
    BuiltGraph built;
    std::vector<NodeId> products = {};
};

ThreeProducts three_products(const Policy& policy, const std::string& fp8_unit = "", std::int64_t rows = 48) {
    const auto network = [rows](Graph& graph) {
        const Tensor x(graph, graph.add_input("x", {DType::f32, {rows, 32}}));
        Tensor h = x;
        for (const char* name : {"a", "b", "c"}) {
            const Tensor w(
                graph, graph.add_state({.name = name, .type = {DType::f32, {32, 32}}, .initializer = {}}));
            h = tanh(matmul(h, w, {.transpose_b = true}));
        }
        return sum(h * h, {0, 1});
    };
    ThreeProducts made{build_training_step(network, testing::show_gradients, {.policy = policy},
                                           {.target = {.fp8_unit = fp8_unit}})};
    for (NodeId id = 0; id < made.built.graph.end(); ++id)
        if (made.built.graph.node(id).origin.rule.find(" list: a linear layer's product") !=
                std::string::npos &&
            made.built.graph.node(id).op->name.ends_with("matmul"))
            made.products.push_back(id);
    return made;
}

const Node& operand_of(const Graph& graph, NodeId product, int side) {
    return graph.node(graph.node(product).inputs[side].node);
}

TEST(RoundOperands, WithAScaleATensorSumsAreMultipliedByBoth) {
    const auto [built, products] = three_products("fp8");
    const Graph& graph = built.graph;
    ASSERT_EQ(products.size(), 3u);
    std::set<NodeId> roundings;
    for (const NodeId product : products) {
        EXPECT_EQ(graph.type({product, 0}).dtype, DType::f32);
        int gradients = 0;
        for (const int side : {0, 1}) {
            const Node& operand = operand_of(graph, product, side);
            ASSERT_EQ(operand.op->name, "round_blocks");
            EXPECT_EQ(operand.attributes.word("rule"), "tensor");
            gradients += operand.attributes.word("element") == "e5m2";
            roundings.insert(graph.node(product).inputs[side].node);
        }
        EXPECT_EQ(gradients, product == products[0] ? 0 : 1);
        // The factor of the sums is the product of both tensors'.
        NodeId scaled = -1;
        for (NodeId id = product; id < graph.end() && scaled < 0; ++id)
            if (graph.node(id).op->name == "mul" && graph.node(id).inputs[0] == Value{product, 0})
                scaled = id;
        ASSERT_GE(scaled, 0) << print(graph, product);
        const Node& factor = graph.node(graph.node(scaled).inputs[1].node);
        ASSERT_EQ(factor.op->name, "mul");
        for (const int side : {0, 1})
            EXPECT_EQ(factor.inputs[side], (Value{graph.node(product).inputs[side].node, 1}));
    }
    EXPECT_EQ(roundings.size(), 3u);  // x, w and dy, each once for both of its products
}

/// Three roundings to bytes, and factors beside them: nothing is multiplied or cast behind the products.
TEST(RoundOperands, AUnitForFp8MultipliesExtentsThatAreWhole) {
    for (const char* policy : {"fp8", "fp8-delayed"}) {
        const auto [built, products] = three_products(policy, "a unit");
        const Graph& graph = built.graph;
        verify(graph, policy);
        ASSERT_EQ(products.size(), 3u);
        std::set<NodeId> roundings;
        for (const NodeId product : products) {
            const Node& node = graph.node(product);
            EXPECT_EQ(node.op->name, "scaled_matmul");
            ASSERT_EQ(node.inputs.size(), 4u);
            for (const std::size_t side : {0u, 1u}) {
                const Node& operand = graph.node(node.inputs[side].node);
                EXPECT_TRUE(operand.attributes.has("fp8")) << print(graph, product);
                EXPECT_EQ(name_of(operand.outputs[0].layout), operand.attributes.word("element"));
                EXPECT_EQ(node.inputs[2 + side], (Value{node.inputs[side].node, 1}));
                roundings.insert(node.inputs[side].node);
            }
        }
        EXPECT_EQ(roundings.size(), 3u);
    }
    const auto products_and_reasons = [](const char* policy, std::int64_t rows) {
        const auto [built, products] = three_products(policy, "a unit", rows);
        std::set<std::string> all;
        for (const NodeId product : products) all.emplace(built.graph.node(product).op->name);
        for (const PassRefusal& refusal : built.refused)
            if (refusal.reason.find("FP8") != std::string::npos) all.insert(refusal.reason);
        return all;
    };
    using Words = std::set<std::string>;
    EXPECT_EQ(
        products_and_reasons("fp8", 40),
        (Words{"its products are in bf16: FP8 takes extents that are multiples of 16, got 40", "matmul"}));
    for (const char* policy : {"fp8-block", "mxfp8", "nvfp4"})
        EXPECT_EQ(products_and_reasons(policy, 48), Words{"matmul"}) << policy;
}

TEST(RoundOperands, Fp8InBlocksHasRowsOf128AndSquareWeights) {
    const auto [built, products] = three_products("fp8-block");
    ASSERT_EQ(products.size(), 3u);
    int square = 0;
    std::set<NodeId> weights;
    for (const NodeId product : products)
        for (const int side : {0, 1}) {
            const Node& operand = operand_of(built.graph, product, side);
            EXPECT_EQ(operand.attributes.word("element"), "e4m3");
            EXPECT_EQ(operand.attributes.integer("block"), 128);
            if (!operand.attributes.has("square")) {
                EXPECT_EQ(operand.attributes.integer("axis"),
                          depth_axis(built.graph, built.graph.node(product), side));
                continue;
            }
            ++square;
            weights.insert(built.graph.node(product).inputs[side].node);
        }
    EXPECT_EQ(square, 2);           // forward, and of x
    EXPECT_EQ(weights.size(), 1u);  // rounded once for both
}

TEST(RoundOperands, Nvfp4TurnsTheFilterGradientAndDrawsForGradients) {
    Policy policy("nvfp4");
    OperandBlocks all_layers = *policy.blocks;
    all_layers.kept_first = all_layers.kept_last = 0;
    policy.blocks = &all_layers;
    const auto [built, products] = three_products(policy);
    ASSERT_EQ(products.size(), 3u);
    std::set<std::int64_t> draws;
    for (std::size_t i = 0; i < 3; ++i)
        for (const int side : {0, 1}) {
            const Node& operand = operand_of(built.graph, products[i], side);
            const bool of_filter = !operand_of(built.graph, products[i], 0).attributes.has("square") &&
                                   !operand_of(built.graph, products[i], 1).attributes.has("square");
            EXPECT_EQ(operand.attributes.word("element"), "e2m1");
            EXPECT_EQ(operand.attributes.word("rule"), "two-level");
            EXPECT_EQ(operand.attributes.has("hadamard"), of_filter) << i << " " << side;
            if (!operand.attributes.has("random")) continue;
            draws.insert(operand.attributes.integer("random"));
            EXPECT_EQ(operand.inputs.size(), 3u);
        }
    EXPECT_EQ(draws.size(), 2u);  // dy of either product, each with bits of its own
}

TEST(RoundOperands, Nvfp4KeepsTheFirstAndTheLastLayers) {
    const BuiltGraph built =
        build_training_step(testing::traced_gpt2(testing::small_gpt2(4, 8, 7), {1, 5}),
                            testing::show_gradients, {.policy = "nvfp4", .fuse_linear_cross_entropy = true});
    std::map<std::string, int> reasons;
    for (const PassRefusal& kept : built.refused)
        if (kept.pass == "round_operands") ++reasons[kept.reason];
    EXPECT_EQ(reasons["the first 3.2 % of all layers stay in bf16"], 1);  // of 16
    EXPECT_EQ(reasons["the last 12.9 % of all layers stay in bf16"], 2);
}

/// Convolutions of 5 images: of an input, one by two, one in groups, and a transposed one; then a head.
BuiltGraph step_of_convolutions(const char* policy) {
    const auto network = [](Graph& graph) {
        const auto weight = [&](const char* name, Shape shape) {
            return Tensor(
                graph,
                graph.add_state({.name = name, .type = {DType::f32, std::move(shape)}, .initializer = {}}));
        };
        const Tensor images(graph, graph.add_input("images", {DType::f32, {5, 8, 8, 3}}));
        Tensor x = tanh(conv2d(images, weight("first", {3, 3, 3, 8}), {.padding = {1, 1, 1, 1}}));
        x = tanh(conv2d(x, weight("second", {3, 3, 8, 6}), {.stride = {2, 2}, .padding = {1, 1, 1, 1}}));
        x = tanh(conv2d(x, weight("groups", {3, 3, 3, 6}), {.padding = {1, 1, 1, 1}, .groups = 2}));
        x = tanh(conv_transpose2d(x, weight("transposed", {2, 2, 4, 6}), {.stride = {2, 2}}));
        x = matmul(mean(x, {1, 2}), weight("head", {4, 7}));
        return sum(x * x, {0, 1});
    };
    return build_training_step(network, testing::show_gradients, {.policy = policy});
}

TEST(RoundOperands, AConvolutionIsRoundedAlongChannelsAndItsFilterGradientAlongTheBatch) {
    for (const char* policy : {"mxfp8", "fp8-block", "fp8", "mxfp4"}) {
        const BuiltGraph built = step_of_convolutions(policy);
        const OperandBlocks blocks = *find_policy(policy).blocks;
        std::map<std::string, int> products;
        for (NodeId id = 0; id < built.graph.end(); ++id) {
            const Node& node = built.graph.node(id);
            if (node.origin.rule.find(" list: a convolution's product") == std::string::npos ||
                node.op->fuser != FuserClass::contraction)
                continue;
            ++products[std::string(node.op->name)];
            for (const int side : {0, 1}) {
                const Node& operand = built.graph.node(node.inputs[side].node);
                ASSERT_EQ(operand.op->name, "round_blocks") << print(built.graph, id);
                const bool is_weight = built.graph.node(operand.inputs[0].node).op->name == "state";
                EXPECT_EQ(operand.attributes.has("square"), is_weight && blocks.square_weights);
                if (blocks.rule == ScaleRule::tensor || operand.attributes.has("square")) continue;
                // The axis whose extent the sum is over: channels that both have, or images.
                const std::int64_t axis = operand.attributes.integer("axis");
                EXPECT_EQ(axis, node.op->name == "conv2d_filter_gradient" ? 0
                                : side == 1 && node.op->name == "conv2d"  ? 2
                                                                          : 3)
                    << print(built.graph, id);
                const auto extent = [&](int of) {
                    const Node& each = built.graph.node(node.inputs[of].node);
                    return each.outputs[0].shape[static_cast<int>(each.attributes.integer("axis"))];
                };
                if (!blocks.square_weights) {
                    EXPECT_EQ(extent(0), extent(1)) << print(built.graph, id);
                }
            }
        }
        // Both convolutions forward, back to x and to the filter; of the transposed one they change places.
        EXPECT_EQ(products, (std::map<std::string, int>{
                                {"conv2d", 2}, {"conv2d_input_gradient", 2}, {"conv2d_filter_gradient", 2}}))
            << policy;
        std::set<std::string> reasons;
        for (const PassRefusal& kept : built.refused)
            if (kept.pass == "round_operands") reasons.insert(kept.reason);
        EXPECT_EQ(reasons, (std::set<std::string>{
                               "the first layer, which reads an input, stays in bf16",
                               "a convolution in groups stays in bf16: a block would lie in several",
                               "the last layer, the head, stays in bf16"}));
    }
}

TEST(RoundOperands, WhatStaysIsToldWithItsReason) {
    std::map<std::string, int> reasons;
    for (const PassRefusal& kept : step_under("mxfp8").refused)
        if (kept.pass == "round_operands") ++reasons[kept.reason];
    EXPECT_EQ(reasons,
              (std::map<std::string, int>{{"no operand is a parameter, as in attention: it stays in bf16", 2},
                                          {"the last layer, the head, stays in bf16", 1}}));
    reasons.clear();
    for (const PassRefusal& kept : step_under("mxfp8", false, true).refused)
        if (kept.pass == "round_operands") ++reasons[kept.reason];
    EXPECT_EQ(reasons["the head, joined with the loss, stays in bf16"], 1);
    EXPECT_FALSE(reasons.contains("the last layer, the head, stays in bf16"));
}

TEST(RoundOperands, TheFirstLayerOfANetworkOfNumbersStays) {
    const auto network = [](Graph& graph) {
        const Tensor x(graph, graph.add_input("x", {DType::f32, {4, 6}}));
        Tensor h = x;
        for (const char* name : {"a", "b", "c"}) {
            const Tensor w(graph,
                           graph.add_state({.name = name, .type = {DType::f32, {6, 6}}, .initializer = {}}));
            h = matmul(h, w);
        }
        return sum(h * h, {0, 1});
    };
    const BuiltGraph built = build_training_step(network, testing::show_gradients, {.policy = "mxfp8"});
    std::vector<std::string> reasons;
    for (const PassRefusal& kept : built.refused) reasons.push_back(kept.reason);
    EXPECT_EQ(reasons, (std::vector<std::string>{"the first layer, which reads an input, stays in bf16",
                                                 "the last layer, the head, stays in bf16"}));
    int rounded = 0;
    for (NodeId id = 0; id < built.graph.end(); ++id)
        rounded += built.graph.node(id).op->name == "round_blocks";
    EXPECT_EQ(rounded, 6);  // x, w and dy of the layer between, twice each
}

TEST(RoundOperands, WeightsAreRoundedOnceAStepAsDerivedStates) {
    const BuiltGraph built = step_under("mxfp8", /*lay_out=*/true);
    int derived = 0;
    for (const State& state : built.graph.states())
        derived += state.kind == State::Kind::derived && state.name.starts_with("e4m3.axis");
    EXPECT_EQ(derived, 2 * 4 * 2);
    for (NodeId id = 0; id < built.graph.end(); ++id) {
        const Node& node = built.graph.node(id);
        if (node.op->name == "round_blocks" && node.origin.stage != Stage::update) {
            EXPECT_LT(built.graph.state_of(node.inputs[0].node), 0) << print(built.graph, id);
        }
    }
}

/// The kernel that writes a tensor may find it then; a parameter's is found once a step, and a transform
/// comes before.
TEST(RoundOperands, TheLargestIsAnOperationOfItsOwnWhereThatIsAsked) {
    Machine machine;
    machine.target.finds_largest_where_written = true;
    for (const char* policy : {"fp8", "fp8-delayed", "nvfp4"}) {
        const BuiltGraph built =
            build_training_step(two_blocks, testing::show_gradients, {.policy = policy}, machine);
        int measured = 0;
        for (NodeId id = 0; id < built.graph.end(); ++id) {
            const Node& node = built.graph.node(id);
            if (node.op->name != "round_blocks") continue;
            const bool is_weight = built.graph.node(node.inputs[0].node).op->name == "state";
            ASSERT_EQ(node.attributes.has("measured"), !is_weight && !node.attributes.has("hadamard"))
                << print(built.graph, id);
            if (!node.attributes.has("measured")) continue;
            ++measured;
            Value largest = node.inputs[node.attributes.has("given") ? 2 : 1];
            for (const char* op : {"max", "max", "maximum", "cast"}) {
                ASSERT_EQ(built.graph.node(largest.node).op->name, op) << print(built.graph, id);
                largest = built.graph.node(largest.node).inputs[0];
            }
            EXPECT_EQ(largest, node.inputs[0]) << print(built.graph, id);
        }
        EXPECT_GT(measured, 0) << policy;
    }
}

TEST(RoundOperands, ItIsNoEmulation) {
    EXPECT_EQ(testing::error_of([] { emulated("mxfp8"); }),
              "mxfp8 is a policy of its own, seen on any machine: give it as the policy");
}

}  // namespace
}  // namespace mantissa
