// Emulation: exactly what contractions multiply is rounded, forward and backward, and nothing else.
#include "mantissa/passes/emulate.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <set>

#include "mantissa/graph/reference.h"
#include "mantissa/passes/pipeline.h"
#include "tests/passes/small_gpt2.h"
#include "tests/support/error_of.h"
#include "tests/support/gpt2.h"
#include "tests/support/show_gradients.h"

namespace mantissa {
namespace {

Graph gpt2_step(const Policy& policy) {
    return build_training_step(testing::traced_gpt2(nn::gpt2_config("gpt2-tiny"), {2, 16}),
                               testing::show_gradients, {.policy = policy})
        .graph;
}

TEST(Emulate, EveryOperandOfEveryContractionIsRoundedAndNothingElse) {
    for (const char* format : {"tf32", "bf16", "fp16"}) {
        const Graph graph = gpt2_step(emulated(format));
        std::set<Value> multiplied;
        int contractions = 0;
        for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id) {
            const Node& node = graph.node(id);
            if (node.op->name != "matmul") continue;
            ++contractions;
            EXPECT_EQ(node.outputs[0].dtype, DType::f32);
            EXPECT_EQ(node.origin.rule.find("emulate "), 0u) << node.origin.rule;
            for (std::size_t i = 0; i < 2; ++i) {
                EXPECT_EQ(graph.node(node.inputs[i].node).op->name, "round_to") << print(graph, id);
                multiplied.insert(node.inputs[i]);
            }
        }
        EXPECT_EQ(contractions, 3 * (4 * 6 + 1));
        for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id) {
            const Node& node = graph.node(id);
            if (node.op->name != "round_to") continue;
            EXPECT_TRUE(multiplied.contains({id, 0})) << print(graph, id);
            EXPECT_EQ(node.attributes.word("format"), std::string(format) == "fp16" ? "f16" : format);
        }
    }
}

/// y = x w, on the reference.
double emulated_product(double x, double w, const char* format, bool exact = false) {
    Graph graph;
    const Tensor a(graph, graph.add_input("a", {DType::f32, {1, 1}})),
        b(graph, graph.add_input("b", {DType::f32, {1, 1}}));
    std::optional<PrecisionScope> scope;
    if (exact) scope.emplace(graph, DType::f32);
    graph.add_result("y", matmul(a, b).value());
    scope.reset();
    const Graph emulated = emulate(graph, format);
    return ReferenceRun(emulated, {{"a", {x}}, {"b", {w}}}).result("y").values.at(0);
}

TEST(Emulate, OperandsHaveTheBitsOfTheFormatAndProductsAreExact) {
    const double x = 1 + std::ldexp(1, -10), fine = 1 + std::ldexp(1, -11) + std::ldexp(1, -14);
    EXPECT_EQ(emulated_product(x, x, "tf32"), x * x);
    EXPECT_EQ(emulated_product(fine, 1, "tf32"), x);
    EXPECT_EQ(emulated_product(x, 1, "bf16"), 1);
    EXPECT_EQ(emulated_product(x, x, "f16"), x * x);
    EXPECT_EQ(emulated_product(std::ldexp(1, -26), 1, "f16"), 0);
    EXPECT_EQ(emulated_product(std::ldexp(1, -26), 1, "bf16"), std::ldexp(1, -26));
    EXPECT_TRUE(std::isinf(emulated_product(70000, 1, "f16")));
    EXPECT_EQ(emulated_product(fine, 1, "tf32", /*exact=*/true), fine);  // forced to FP32 by the model
}

TEST(Emulate, WhatCannotBeRoundedOrIsNoFormatIsRefused) {
    // fp32 rounds nothing; int8 and int4 are policies of weights, whose other numbers are bf16.
    for (const std::string format : {"fp32", "int8", "int4"})
        EXPECT_EQ(testing::error_of([&] { emulated(format); }),
                  "there is no format '" + format + "' to emulate; there are tf32, bf16, fp16");
    EXPECT_EQ(testing::error_of([] {
                  Graph graph;
                  const Type type{DType::f32, {1, 2, 4, 8}};
                  const Tensor q(graph, graph.add_input("q", type));
                  graph.add_result("y", attention(q, q, q, {}).value());
                  emulate(graph, "bf16");
              })
                  .find("attention multiplies inside of one operation, where nothing can be rounded to "
                        "emulate bf16"),
              0u);
    const PipelineOptions flash{.policy = emulated("bf16"), .match_attention = true};
    EXPECT_EQ(testing::error_of([&] {
                  build_evaluation([](Graph& graph) { return constant(graph, 1); }, flash);
              }).find("an emulation rounds what contractions multiply"),
              0u);
}

}  // namespace
}  // namespace mantissa
