// Autocast: which operation runs in which format, by which rule, and what that does to gradients.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>

#include "mantissa/base/error.h"
#include "mantissa/graph/attention_score.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/autocast.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/train/optimizer_update.h"
#include "tests/passes/small_gpt2.h"
#include "tests/support/gpt2.h"

namespace mantissa {
namespace {

using testing::traced_gpt2;

Graph gpt2_step_in(const std::string& policy) {
    PipelineOptions options;
    options.policy = find_policy(policy);
    return build_training_step(traced_gpt2(nn::gpt2_config("gpt2-tiny"), {2, 8}), optimizer_update(adamw()),
                               options)
        .graph;
}

/// By operation: the storage types of the first operand that a stage of the graph has.
std::map<std::string, std::set<DType>> operand_types(const Graph& graph, Stage stage) {
    std::map<std::string, std::set<DType>> types;
    for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id) {
        const Node& node = graph.node(id);
        if (node.origin.stage == stage && !node.inputs.empty())
            types[std::string(node.op->name)].insert(graph.type(node.inputs[0]).dtype);
    }
    return types;
}

/// A graph with the inputs x and y, rewritten by a policy.
struct Rewritten {
    Graph graph;
    Value result;

    template <class Build>
    Rewritten(const std::string& policy, Type x, Type y, Build&& build) {
        Graph source;
        const Tensor a(source, source.add_input("x", std::move(x)));
        const Tensor b(source, source.add_input("y", std::move(y)));
        result = build(a, b).value();
        graph = autocast(source, find_policy(policy), result);
    }
    const Node& node() const { return graph.node(result.node); }
    DType dtype() const { return graph.type(result).dtype; }
    DType operand(std::size_t i) const { return graph.type(node().inputs[i]).dtype; }
};

const Type f32_matrix{DType::f32, {4, 4}};

TEST(Autocast, Fp32ChangesNothing) {
    Graph graph;
    Value loss = traced_gpt2(nn::gpt2_config("gpt2-tiny"), {2, 8})(graph).value();
    const Value before = loss;
    EXPECT_EQ(print(autocast(graph, find_policy("fp32"), loss)), print(graph));
    EXPECT_EQ(loss, before);
}

/// Rows that are added up are FP32, there and in gradients; x of a network's middle is in the low format.
TEST(Autocast, AddsRowsByIdInFp32) {
    for (const char* const policy : {"bf16", "fp16"}) {
        PipelineOptions options;
        options.policy = find_policy(policy);
        const auto loss = [](Graph& graph) {
            const Tensor x(graph, graph.add_input("x", {DType::f32, {6, 4}}));
            const Tensor ids(graph, graph.add_input("ids", {DType::i32, {6}}));
            const Tensor w(graph, graph.add_state({.kind = State::Kind::parameter,
                                                   .name = "w",
                                                   .type = {DType::f32, {4, 4}},
                                                   .initializer = {}}));
            const Tensor h = ops::matmul(x, w);
            const Tensor taken = embedding(h, ids);
            const Tensor at = broadcast_to(reshape(ids, {6, 1}), {6, 4});
            return ops::sum(ops::scatter_add(h, 0, at, taken), {0, 1});
        };
        const Graph graph = build_training_step(loss, optimizer_update(adamw()), options).graph;
        for (const Stage stage : {Stage::forward, Stage::backward})
            EXPECT_EQ(operand_types(graph, stage)["embedding_grad"], std::set{DType::f32}) << policy;
        EXPECT_EQ(operand_types(graph, Stage::forward)["embedding"], std::set{*options.policy.low}) << policy;
    }
}

TEST(Autocast, ContractionsRunInTheLowFormatAndListedOperationsInFp32) {
    for (const auto& [policy, low] : {std::pair{"bf16", DType::bf16}, std::pair{"fp16", DType::f16}}) {
        const Graph graph = gpt2_step_in(policy);
        for (Stage stage : {Stage::forward, Stage::backward}) {
            auto types = operand_types(graph, stage);
            EXPECT_EQ(types["matmul"], std::set{low}) << policy;
            const bool forward = stage == Stage::forward;
            for (const char* op : {"layer_norm", "softmax", "cross_entropy"})
                EXPECT_EQ(types[forward ? op : std::string(op) + "_grad"], std::set{DType::f32}) << op;
            EXPECT_EQ(types[forward ? "gelu" : "gelu_grad"], std::set{low});  // unlisted: as it comes
        }
        EXPECT_EQ(operand_types(graph, Stage::update)["adamw"], std::set{DType::f32});
    }
}

TEST(Autocast, TheResidualStreamStaysFp32) {
    const Graph graph = gpt2_step_in("bf16");
    int sums = 0;
    for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id) {
        const Node& node = graph.node(id);
        if (node.op->name != "add" || node.origin.stage != Stage::forward) continue;
        EXPECT_EQ(node.outputs[0].dtype, DType::f32) << print(graph, id);
        ++sums;
    }
    EXPECT_EQ(sums, 9);  // the embeddings, and two a block
}

TEST(Autocast, EachParameterIsCastOnceAndItsGradientIsNeverRounded) {
    const Graph graph = gpt2_step_in("bf16");
    std::map<NodeId, int> casts;
    for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id) {
        const Node& node = graph.node(id);
        if (node.op->name == "cast" && graph.state_of(node.inputs[0].node) >= 0) ++casts[node.inputs[0].node];
        if (node.op->name != "adamw") continue;
        // The tied table's gradient is a sum of two in FP32; all others come straight from their contraction
        // or sum.
        const Node& gradient = graph.node(node.inputs[1].node);
        EXPECT_EQ(gradient.outputs[static_cast<std::size_t>(node.inputs[1].output)].dtype, DType::f32);
        EXPECT_NE(gradient.op->name, "cast") << print(graph, node.inputs[1].node);
    }
    EXPECT_EQ(casts.size(), 4u * 8u + 1u);  // weight and bias of four linears a block, and the table
    for (const auto& [parameter, count] : casts) EXPECT_EQ(count, 1) << print(graph, parameter);
}

TEST(Autocast, NoCastIsRedundant) {
    const Graph graph = gpt2_step_in("bf16");
    for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id) {
        const Node& node = graph.node(id);
        if (node.op->name != "cast") continue;
        const Node& operand = graph.node(node.inputs[0].node);
        EXPECT_NE(graph.type(node.inputs[0]).dtype, node.outputs[0].dtype) << print(graph, id);
        EXPECT_FALSE(operand.op->name == "cast" &&
                     graph.type(operand.inputs[0]).dtype == node.outputs[0].dtype &&
                     size_of(operand.outputs[0].dtype) > size_of(node.outputs[0].dtype))
            << print(graph, id);
    }
}

TEST(Autocast, MixedOperandsArePromoted) {
    const Rewritten sum("bf16", f32_matrix, f32_matrix, [](Tensor x, Tensor y) { return x + matmul(x, y); });
    EXPECT_EQ(sum.dtype(), DType::f32);
    EXPECT_EQ(sum.operand(1), DType::f32);
    EXPECT_EQ(sum.node().origin.rule, "promotion: add");
    EXPECT_EQ(sum.graph.node(sum.node().inputs[1].node).origin.rule, "promotion: add");
}

TEST(Autocast, PartsOfMixedFormatsAreJoinedInTheWidest) {
    const Rewritten joined("bf16", f32_matrix, f32_matrix, [](Tensor x, Tensor y) {
        return concat(std::array{x, matmul(x, y)}, 0);
    });
    EXPECT_EQ(joined.dtype(), DType::f32);
    EXPECT_EQ(joined.node().origin.rule, "promotion: concat");
    const Rewritten low("bf16", f32_matrix, f32_matrix, [](Tensor x, Tensor y) {
        return concat(std::array{matmul(x, y), matmul(y, x)}, 0);
    });
    EXPECT_EQ(low.dtype(), DType::bf16);
}

TEST(Autocast, ABiasOfATransposedConvolutionWidensNothing) {
    const Type images{DType::f32, {1, 4, 4, 3}}, filter{DType::f32, {2, 2, 5, 3}};
    const Rewritten grown("bf16", images, filter, [](Tensor x, Tensor w) {
        const Tensor bias(x.graph(), x.graph().add_input("bias", {DType::f32, {5}}));
        return conv_transpose2d(x, w, {.stride = {2, 2}, .bias = bias});
    });
    EXPECT_EQ(grown.dtype(), DType::bf16);
    EXPECT_EQ(grown.node().op->name, "add_bias");
}

TEST(Autocast, ANumberWidensNothing) {
    const Rewritten scaled("bf16", f32_matrix, f32_matrix,
                           [](Tensor x, Tensor y) { return matmul(x, y) * (1.0 / 3.0); });
    EXPECT_EQ(scaled.dtype(), DType::bf16);
    EXPECT_EQ(scaled.operand(1), DType::f32);  // and is not rounded itself
}

TEST(Autocast, OperandsOfAScoreKeepTheirTypes) {
    // Though what makes one of them is lowered: the bias is a product.
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {1, 1, 4, 4}}));
    Graph body;
    const Type scores{DType::f32, {1, 1, 4, 4}};
    const Tensor s(body, body.add_input("s", scores)), bias(body, body.add_input("x1", scores));
    body.add_result("score", (s + bias).value());
    const Attributes attributes =
        with_score({{"causal", false}, {"scale", 0.5}}, {.body = Body(body), .operands = {"ts"}});
    const Tensor made = reshape(matmul(x, x), {4, 4});
    Value result = call(graph, "attention", std::vector{x, x, x, made}, attributes)[0].value();
    const Graph rewritten = autocast(graph, find_policy("bf16"), result);
    const Node& attention = rewritten.node(result.node);
    EXPECT_EQ(attention.op->name, "attention");
    for (const std::size_t at : {0u, 1u, 2u})
        EXPECT_EQ(rewritten.type(attention.inputs[at]).dtype, DType::bf16);
    EXPECT_EQ(rewritten.type(attention.inputs[3]).dtype, DType::f32);
}

TEST(Autocast, EachDecisionCarriesItsRule) {
    const Rewritten y("bf16", f32_matrix, f32_matrix,
                      [](Tensor a, Tensor b) { return softmax(matmul(a, b)); });
    EXPECT_EQ(y.node().origin.rule, "f32 list: softmax");
    const Node& widened = y.graph.node(y.node().inputs[0].node);
    EXPECT_EQ(widened.op->name, "cast");
    const Node& product = y.graph.node(widened.inputs[0].node);
    EXPECT_EQ(product.origin.rule, "bf16 list: matmul");
    EXPECT_EQ(product.outputs[0].dtype, DType::bf16);
}

TEST(Autocast, Fp64IsLeftAlone) {
    const Type f64_matrix{DType::f64, {4, 4}};
    const Rewritten y("bf16", f64_matrix, f64_matrix, [](Tensor a, Tensor b) { return matmul(a, b); });
    EXPECT_EQ(y.dtype(), DType::f64);
    EXPECT_EQ(y.node().origin.rule, "");
}

TEST(Autocast, Tf32IsAWayToMultiplyAndNotToStore) {
    const Graph graph = gpt2_step_in("tf32");
    int products = 0;
    for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id) {
        const Node& node = graph.node(id);
        EXPECT_NE(node.op->name, "cast") << print(graph, id);
        if (node.op->name != "matmul") continue;
        EXPECT_EQ(node.attributes.word("multiply"), "tf32") << print(graph, id);
        EXPECT_EQ(node.outputs[0].dtype, DType::f32);
        ++products;
    }
    EXPECT_EQ(products, 3 * (4 * 6 + 1));
}

TEST(Autocast, AScopeForcesAFormat) {
    const auto forced = [](DType dtype) {
        return [dtype](Tensor x, Tensor y) {
            const PrecisionScope scope(x.graph(), dtype);
            return matmul(x, y);
        };
    };
    const Rewritten exact("bf16", f32_matrix, f32_matrix, forced(DType::f32));
    EXPECT_EQ(exact.dtype(), DType::f32);
    EXPECT_EQ(exact.operand(0), DType::f32);
    EXPECT_EQ(exact.node().origin.rule, "asked for: f32");
    const Rewritten half("bf16", f32_matrix, f32_matrix, forced(DType::f16));
    EXPECT_EQ(half.operand(0), DType::f16);
    const Rewritten not_tf32("tf32", f32_matrix, f32_matrix, forced(DType::f32));
    EXPECT_FALSE(not_tf32.node().attributes.has("multiply"));
    // Outside of the scope the policy holds again, and takes what the scope made.
    const Rewritten after("bf16", f32_matrix, f32_matrix,
                          [&](Tensor x, Tensor y) { return matmul(forced(DType::f32)(x, y), y); });
    EXPECT_EQ(after.operand(0), DType::bf16);
}

TEST(Autocast, AScopeOfNoFloatingFormatIsRefused) {
    Graph graph;
    const OriginScope scope(graph, "h.3");
    for (DType dtype : {DType::i32, DType::f64}) {
        try {
            const PrecisionScope forced(graph, dtype);
            FAIL() << name_of(dtype) << " was accepted";
        } catch (const UserError& error) {
            EXPECT_EQ(std::string(error.what()),
                      "a precision scope (traced in h.3) must force f32, bf16 or f16, got " +
                          std::string(name_of(dtype)));
        }
    }
}

TEST(Autocast, IsIdempotent) {
    Graph graph;
    Value loss = traced_gpt2(nn::gpt2_config("gpt2-tiny"), {2, 8})(graph).value();
    const Graph once = autocast(graph, find_policy("bf16"), loss);
    EXPECT_EQ(print(autocast(once, find_policy("bf16"), loss)), print(once));
}

TEST(Autocast, AnUnknownPolicyIsNamed) {
    try {
        find_policy("fp7");
        FAIL() << "fp7 was accepted";
    } catch (const UserError& error) {
        EXPECT_STREQ(
            error.what(),
            "there is no policy 'fp7'; there are fp32, tf32, bf16, fp16, fp8, fp8-delayed, fp8-block, mxfp8, "
            "mxfp6, mxfp6-e2m3, mxfp4, mxfp4-up, nvfp4, and for inference int8, int4");
    }
}

}  // namespace
}  // namespace mantissa
