// Operations around contractions in a network of images run on vector kernels: none of its launches that
// moves much is a plain loop, on the rungs that fuse nothing and on those that do.
#include <gtest/gtest.h>

#include "mantissa/codegen/compiler.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/layers.h"
#include "mantissa/train/loss_scale.h"
#include "mantissa/train/optimizer.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"

namespace mantissa {
namespace {

constexpr std::int64_t images_a_plan = 8;

/// A residual block between a stem with a pool and a head, its convolutions 1 x 1.
nn::Model residual_block() {
    nn::Model model;
    model.name = "residual block";
    model.inputs = {{"images", DType::f32, {16, 16, 32}}};
    model.loss = [](Graph& graph, std::span<const Tensor> inputs, const nn::Mode& mode) {
        const auto normed = [&](Tensor x, const char* name) {
            const OriginScope scope(graph, name);
            return nn::batch_norm(nn::linear(x, "conv", {.outputs = 64}), "norm", mode);
        };
        Tensor x = relu(normed(inputs[0], "stem"));
        x = max_pool2d(x, {.window = {3, 3}, .stride = {2, 2}, .padding = {1, 1, 1, 1}});
        const Tensor branch = normed(relu(normed(x, "first")), "second");
        x = average_pool2d(relu(branch + x), {.window = {2, 2}, .stride = {2, 2}});
        const Tensor y = nn::linear(mean(x, {1, 2}), "head", {.outputs = 1}) - 1.0;
        return mean(y * y, {0, 1});
    };
    return model;
}

TrainingPlan plan_of(Device& device, const char* policy, bool every_pass) {
    TrainerOptions options;
    options.optimizer = sgd();
    options.batch = images_a_plan;
    options.policy = find_policy(policy);
    if (!every_pass) options.passes = {"simplify"};
    return {device, residual_block(), options};
}

std::vector<bool> ways() {
    return codegen::Compiler::refusal().empty() ? std::vector{false, true} : std::vector{false};
}

TEST(ImagesPlan, NothingThatMovesMuchIsAPlainLoop) {
    const auto device = make_cpu_device({.threads = 2});
    for (const char* policy : {"fp32", "bf16", "fp16"})
        for (const bool every_pass : ways()) {
            const TrainingPlan plan = plan_of(*device, policy, every_pass);
            for (const PlannedNode& node : plan.step().nodes()) {
                if (node.cost.bytes < (16 << 10) || !node.launch) continue;
                EXPECT_EQ(node.kernel.find("plain"), std::string::npos)
                    << policy << (every_pass ? " fused: " : ": ") << print(plan.step().graph(), node.node)
                    << " is run by " << node.kernel;
            }
        }
}

TEST(ImagesPlan, NoImageIsKeptInFp32WhereActivationsAreShorter) {
    const auto device = make_cpu_device({.threads = 2});
    for (const char* policy : {"bf16", "fp16"})
        for (const bool every_pass : ways()) {
            const TrainingPlan plan = plan_of(*device, policy, every_pass);
            const Graph& graph = plan.step().graph();
            for (const PlannedNode& node : plan.step().nodes()) {
                if (graph.node(node.node).inputs.empty()) continue;
                // The mean over the last image, 4 x 4, is of FP32, and small.
                for (const Type& type : graph.node(node.node).outputs)
                    EXPECT_FALSE(type.dtype == DType::f32 &&
                                 type.shape.elements() > images_a_plan * 4 * 4 * 64)
                        << policy << (every_pass ? " fused: " : ": ") << print(graph, node.node);
            }
        }
}

TEST(ImagesPlan, StatisticsAreMadeInOneWalkWhateverIsFused) {
    if (ways().size() == 1) GTEST_SKIP() << codegen::Compiler::refusal();
    const auto device = make_cpu_device({.threads = 2});
    const TrainingPlan eager = plan_of(*device, "bf16", false), fused = plan_of(*device, "bf16", true);
    const auto count = [](const TrainingPlan& plan, std::string_view op) {
        std::int64_t nodes = 0;
        for (const PlannedNode& node : plan.step().nodes())
            nodes += plan.step().graph().node(node.node).op->name == op;
        return nodes;
    };
    EXPECT_EQ(count(eager, "batch_norm"), 3);
    EXPECT_EQ(count(eager, "batch_norm_grad"), 3);
    EXPECT_EQ(count(fused, "batch_norm"), 0) << "its arithmetic goes into nests, with the relu behind it";
    EXPECT_EQ(count(fused, "batch_norm_grad"), 0);
    EXPECT_EQ(count(fused, "moments"), 3);
    EXPECT_EQ(count(fused, "relu"), 0);
    EXPECT_EQ(count(fused, "relu_grad"), 0);
}

}  // namespace
}  // namespace mantissa
