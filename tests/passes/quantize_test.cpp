// The changes of a quantised policy, and what it leaves: each decision with its rule.
#include "mantissa/passes/quantize.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include <map>

#include "mantissa/base/error.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/train/optimizer_update.h"
#include "tests/passes/small_gpt2.h"

namespace mantissa {
namespace {

const TraceModel quantizable = testing::traced_gpt2(testing::small_gpt2(2, 8, 7), {1, 5});

TEST(Quantize, TakesLinearLayersAndLeavesAllElseToAutocast) {
    const BuiltGraph built = build_evaluation(quantizable, {.policy = find_policy("int8"), .lay_out = true});
    verify(built.graph, "int8");
    std::map<std::string, int> rules;
    for (std::size_t i = 0; i < built.graph.size(); ++i) {
        const Node& node = built.graph.node(static_cast<NodeId>(i));
        if (node.op->name == "quantized_matmul") {
            ++rules[node.origin.rule];
            EXPECT_EQ(built.graph.type(node.inputs[1]).dtype, DType::s8);
            EXPECT_EQ(node.outputs[0].dtype, DType::f32);
        }
        if (node.op->name == "matmul") {
            EXPECT_EQ(node.origin.rule, "bf16 list: matmul") << "a product of attention";
            EXPECT_EQ(built.graph.type(node.inputs[0]).dtype, DType::bf16);
        }
        if (node.op->name == "softmax" || node.op->name == "layer_norm" || node.op->name == "embedding") {
            EXPECT_EQ(node.outputs[0].dtype, DType::f32) << node.op->name;
        }
    }
    // Four in each block, and the last.
    EXPECT_EQ(rules, (std::map<std::string, int>{{"s8 list: weight of a linear layer", 9}}));
}

TEST(Quantize, MakesWeightsOnceAsDerivedStates) {
    for (const char* policy : {"int8", "int4"}) {
        const BuiltGraph built =
            build_evaluation(quantizable, {.policy = find_policy(policy), .lay_out = true});
        int weights = 0;
        std::int64_t bytes = 0;
        for (const State& state : built.graph.states())
            if (state.kind == State::Kind::derived && state.type.dtype == DType::s8) {
                ++weights;
                bytes += state.type.bytes();
            }
        EXPECT_EQ(weights, 9);
        EXPECT_EQ(bytes, (2 * 12 * 64 + 7 * 8) / (policy == std::string("int8") ? 1 : 2));
        EXPECT_EQ(built.derive.updates().size(), 2u * 9);
    }
}

TEST(Quantize, TrainingIsRefusedInOneLine) {
    try {
        build_training_step(quantizable, optimizer_update(adamw()), {.policy = find_policy("int8")});
        FAIL() << "int8 was trained";
    } catch (const UserError& error) {
        EXPECT_STREQ(
            error.what(),
            "policy int8 is for inference only, since whole numbers have no gradient; train in fp32, "
            "tf32, bf16, fp16, fp8, fp8-delayed, fp8-block, mxfp8, mxfp6, mxfp6-e2m3, mxfp4, mxfp4-up, "
            "nvfp4, and "
            "give `policy` int8 to generate");
    }
}

}  // namespace
}  // namespace mantissa
