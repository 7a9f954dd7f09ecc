// Frozen weights: their bytes never change, nothing computes their gradients, and a checkpoint knows them.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/formats/safetensors.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/layers.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/ema.h"
#include "mantissa/train/loss_scale.h"
#include "mantissa/train/optimizer.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_checkpoint.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/training_states.h"

namespace mantissa {
namespace {

using testing::error_of;

/// A trunk of a linear layer and a batch norm, a middle, and a head.
nn::Model frozen_network() {
    nn::Model model{.name = "network", .inputs = {{"x", DType::f32, {12}}, {"y", DType::i32, {}}}};
    model.loss = [](Graph& graph, std::span<const Tensor> in, const nn::Mode& mode) {
        Tensor x = in[0];
        {
            const OriginScope trunk(graph, "trunk");
            x = nn::linear(x, "linear", {.outputs = 16, .standard_deviation = 0.4});
            x = relu(nn::batch_norm(x, "norm", mode, {.momentum = 0.5}));
        }
        x = gelu(nn::linear(x, "middle", {.outputs = 16, .standard_deviation = 0.4}));
        return cross_entropy(nn::linear(x, "head", {.outputs = 4, .standard_deviation = 0.4}), in[1]);
    };
    return model;
}

struct ClassData {
    std::vector<float> x;
    std::vector<std::int32_t> y;
    explicit ClassData(std::int64_t examples, int seed = 0) {
        for (std::int64_t i = 0; i < 12 * examples; ++i)
            x.push_back(static_cast<float>((i * 37 + seed * 11) % 23) / 11.0f - 1.0f);
        for (std::int64_t i = 0; i < examples; ++i) y.push_back(static_cast<std::int32_t>((i + seed) % 4));
    }
    Batch batch() const { return {x, y}; }
};

testing::StateBytes weight_bytes_of(const Trainer& trainer) { return testing::states_of(trainer, is_weight); }

TrainerOptions frozen_trunk(Optimizer optimizer, const char* policy, std::int64_t accumulate) {
    TrainerOptions options{
        .optimizer = std::move(optimizer), .batch = 4, .accumulate = accumulate, .frozen = {"trunk.*"}};
    options.policy = find_policy(policy);
    options.loss_scale = default_loss_scale(options.policy);
    return options;
}

TEST(Frozen, BytesNeverChangeAndAllElseDoes) {
    const auto device = make_cpu_device({.threads = 2});
    for (const Optimizer& optimizer :
         {adamw({.weight_decay = 0.5, .decay_matrices_only = false}),
          sgd({.momentum = 0.9, .weight_decay = 0.5}), muon({.weight_decay = 0.5})})
        for (const char* policy : {"fp32", "bf16", "fp16"})
            for (const std::int64_t accumulate : {1, 3}) {
                TrainerOptions options = frozen_trunk(optimizer, policy, accumulate);
                options.ema_decay = 0.9;
                Trainer trainer(*device, frozen_network(), options);
                const auto before = weight_bytes_of(trainer);
                int applied = 0;
                for (int step = 0; step < 5; ++step)
                    applied += trainer.step(ClassData(4 * accumulate, step).batch(), 1e-2).applied;
                ASSERT_GT(applied, 0);
                const std::string which = optimizer.name + " " + policy;
                for (const auto& [name, bytes] : weight_bytes_of(trainer))
                    EXPECT_EQ(bytes == before.at(name), name.starts_with("trunk.")) << name << " " << which;
            }
}

TEST(Frozen, GradientsOfTheTrunkAreNotInThePlan) {
    const auto device = make_cpu_device({.threads = 1});
    TrainerOptions options{.batch = 4};
    const TrainingPlan whole(*device, frozen_network(), options);
    options.frozen = {"trunk.*"};
    const TrainingPlan plan(*device, frozen_network(), options);
    const auto backward_in_trunk = [](const TrainingPlan& of) {
        int count = 0;
        const Graph& graph = of.step().graph();
        for (const PlannedNode& planned : of.step().nodes()) {
            const Origin& origin = graph.node(planned.node).origin;
            count += origin.stage == Stage::backward && origin.scope.starts_with("trunk");
        }
        return count;
    };
    EXPECT_GT(backward_in_trunk(whole), 0);
    EXPECT_EQ(backward_in_trunk(plan), 0);
    // Each linear layer multiplies three times, for its result, its weights and its input; a plan has no use
    // for the last of the first layer. With a frozen trunk the trunk multiplies once, and the middle twice.
    const double trunk = 2.0 * 12 * 16, middle = 2.0 * 16 * 16, head = 2.0 * 16 * 4;
    EXPECT_EQ(testing::planned_flops(whole), 4 * (2 * trunk + 3 * middle + 3 * head));
    EXPECT_EQ(testing::planned_flops(plan), 4 * (trunk + 2 * middle + 3 * head));
    EXPECT_EQ(plan.facts().flops_per_example, trunk + 2 * middle + 3 * head);
    EXPECT_EQ(whole.facts().flops_per_example, 3 * (trunk + middle + head));
    EXPECT_EQ(plan.facts().frozen, 12 * 16 + 16 + 2 * 16);
    EXPECT_EQ(plan.facts().parameters, whole.facts().parameters);
    // No moments of it are kept.
    for (const State& state : plan.step().graph().states())
        EXPECT_EQ(state.name.find(".trunk."), std::string::npos) << state.name;
}

TEST(Frozen, ANormOfTheTrunkIsThatOfAnEvaluation) {
    const auto device = make_cpu_device({.threads = 1});
    const ClassData data(4);
    const auto losses = [&](std::vector<std::string> frozen) {
        Trainer trainer(*device, frozen_network(), {.batch = 4, .frozen = std::move(frozen)});
        const float mean = 0.75f;
        trainer.state().write("trunk.norm.running_mean",
                              std::as_bytes(std::span<const float>(std::vector<float>(16, mean))));
        const float evaluated = trainer.evaluate(data.batch()).loss;
        return std::pair(trainer.step(data.batch(), 0).loss, evaluated);
    };
    const auto [step, evaluated] = losses({"trunk.*"});
    EXPECT_EQ(step, evaluated);
    // Where only its parameters are, it follows the batch as before.
    const auto [other, same] = losses({"trunk.*.weight", "trunk.*.bias"});
    EXPECT_NE(other, same);
}

TEST(Frozen, ARunGoesOnToTheSameBitsAndAnotherIsRefused) {
    const TemporaryDirectory directory;
    const auto device = make_cpu_device({.threads = 2});
    const auto options = [&](std::vector<std::string> frozen, double decay) {
        TrainerOptions all = frozen_trunk(adamw(), "bf16", 2);
        all.frozen = std::move(frozen);
        all.ema_decay = decay;
        return all;
    };
    const std::vector<std::string> trunk = {"trunk.*"};
    const auto train = [](Trainer& trainer, int from, int to) {
        for (int step = from; step < to; ++step) trainer.step(ClassData(8, step).batch(), 1e-2);
    };
    Trainer straight(*device, frozen_network(), options(trunk, 0.9)),
        first(*device, frozen_network(), options(trunk, 0.9));
    train(straight, 0, 6);
    train(first, 0, 3);
    const auto before = weight_bytes_of(first);
    save_training(directory / "ck", first);
    EXPECT_TRUE(weight_bytes_of(first) == before);  // saving changes nothing
    Trainer resumed(*device, frozen_network(), options(trunk, 0.9));
    resume_training(directory / "ck", resumed);
    EXPECT_TRUE(weight_bytes_of(resumed) == before);
    train(resumed, 3, 6);
    for (const State& state : straight.state().states())
        EXPECT_TRUE(straight.state().read(state.name) == resumed.state().read(state.name)) << state.name;

    const auto error = [&](const std::vector<std::string>& frozen, double decay, Resume resume) {
        Trainer other(*device, frozen_network(), options(frozen, decay));
        return error_of<UserError>([&] { resume_training(directory / "ck", other, {}, resume); });
    };
    const std::string begin = (directory / "ck" / "state.json").string() + ": it was trained with ",
                      end = "; give the same options to resume";
    for (const Resume resume : {Resume::as_it_was, Resume::with_changes}) {
        EXPECT_EQ(error({}, 0.9, resume), begin + "frozen = [\"trunk.*\"], this run has nothing" + end);
        EXPECT_EQ(error({"trunk.linear.*"}, 0.9, resume),
                  begin + "frozen = [\"trunk.*\"], this run has [\"trunk.linear.*\"]" + end);
        EXPECT_EQ(error(trunk, 0, resume), begin + "ema_decay = 0.9, this run has nothing" + end);
    }
    EXPECT_EQ(error(trunk, 0.8, Resume::as_it_was), begin + "ema_decay = 0.9, this run has 0.8" + end);
    EXPECT_EQ(error(trunk, 0.8, Resume::with_changes), "no error");
}

TEST(Frozen, ACheckpointsModelIsTheAverage) {
    const TemporaryDirectory directory;
    const auto device = make_cpu_device({.threads = 1});
    Trainer trainer(*device, frozen_network(), {.batch = 4, .ema_decay = 0.5}),
        plain(*device, frozen_network(), {.batch = 4});
    for (int step = 0; step < 3; ++step) trainer.step(ClassData(4, step).batch(), 1e-1);
    save_training(directory / "ck", trainer);
    const SafetensorsFile model(directory / "ck" / "model.safetensors"),
        optimizer(directory / "ck" / "optimizer.safetensors");
    const auto bytes_in = [](const SafetensorsFile& file, const std::string& name) {
        for (const TensorView& view : file.views())
            if (view.name == name)
                return std::vector<std::byte>(view.data, view.data + byte_count(view.dtype, view.shape));
        ADD_FAILURE() << name;
        return std::vector<std::byte>();
    };
    const auto raw = trainer.state().read("head.weight");
    EXPECT_TRUE(bytes_in(optimizer, "raw.head.weight") == raw);
    EXPECT_FALSE(bytes_in(model, "head.weight") == raw);
    EXPECT_TRUE(bytes_in(model, "head.weight") == trainer.state().read("ema.head.weight"));
    const ClassData data(7, 9);
    const float own = trainer.evaluate(data.batch()).loss;
    {
        const AveragedWeights averaged(trainer.state());
        EXPECT_TRUE(bytes_in(model, "head.weight") == trainer.state().read("head.weight"));
        EXPECT_NE(trainer.evaluate(data.batch()).loss, own);
    }
    EXPECT_EQ(trainer.evaluate(data.batch()).loss, own);
    EXPECT_TRUE(trainer.state().read("head.weight") == raw);
    // Before the first step there is no average, and where none is kept nothing happens.
    const float drawn = plain.evaluate(data.batch()).loss;
    Trainer fresh(*device, frozen_network(), {.batch = 4, .ema_decay = 0.5});
    for (Trainer* each : {&plain, &fresh}) {
        const AveragedWeights averaged(each->state());
        EXPECT_EQ(each->evaluate(data.batch()).loss, drawn);
    }
}

TEST(Frozen, ABadStepLeavesAveragesAsTheyAre) {
    const auto device = make_cpu_device({.threads = 1});
    Trainer trainer(*device, frozen_network(), {.batch = 4, .ema_decay = 0.5});
    trainer.step(ClassData(4).batch(), 1e-1);
    std::map<std::string, std::vector<std::byte>> before;
    for (const State& state : trainer.state().states()) before[state.name] = trainer.state().read(state.name);
    ClassData bad(4);
    bad.x[5] = INFINITY;
    EXPECT_FALSE(trainer.step(bad.batch(), 1e-1).applied);
    for (const auto& [name, bytes] : before) EXPECT_TRUE(trainer.state().read(name) == bytes) << name;
}

TEST(Frozen, WhatCannotBeIsRefused) {
    const auto device = make_cpu_device({.threads = 1});
    const auto error = [&](TrainerOptions options) {
        return error_of<UserError>([&] { TrainingPlan(*device, frozen_network(), std::move(options)); });
    };
    EXPECT_EQ(error({.frozen = {"trunk.*", "body.*"}}),
              "model network has no weight that 'body.*' names, to be frozen; it has trunk.linear.weight, "
              "trunk.linear.bias, trunk.norm.weight, trunk.norm.bias, trunk.norm.running_mean, "
              "trunk.norm.running_var, middle.weight, middle.bias, head.weight, head.bias");
    EXPECT_EQ(error({.frozen = {"*"}}),
              "model network: all 580 parameters are frozen, so there is nothing to train; freeze fewer");
    EXPECT_EQ(error({.ema_decay = 1}), "the decay of averaged weights must lie in [0, 1), got 1");
    Graph graph;
    graph.freeze({"w"});
    const Tensor w = nn::parameter(graph, "w", {2}, {});
    EXPECT_EQ(error_of<UserError>([&] { graph.add_update(0, w.value()); }),
              "update: state 'w' is frozen, so nothing updates it");
}

}  // namespace
}  // namespace mantissa
