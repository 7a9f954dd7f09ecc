// Ranks train networks with batch norms to the bits of one process: running statistics travel, and follow the
// micro-batches in their order, whoever made them.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "mantissa/codegen/compiler.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/layers.h"
#include "mantissa/runtime/non_finite.h"
#include "mantissa/train/agreement.h"
#include "mantissa/train/loss_scale.h"
#include "mantissa/train/optimizer.h"
#include "mantissa/train/training_checkpoint.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/random_draws.h"
#include "tests/support/rank_threads.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/rank_training.h"
#include "tests/train/training_states.h"

namespace mantissa {
namespace {

using testing::run_good_ranks;
using testing::whole_state;

constexpr std::int64_t images_a_part = 2, side = 4;
constexpr std::int64_t values_a_part = images_a_part * side * side * 3;  // of a micro-batch

/// Images [B, 4, 4, 3] through three batch norms, of which one follows its batches faster. The weights
/// between them are cut among ranks.
nn::Model normed_network() {
    nn::Model model;
    model.name = "three norms";
    model.inputs = {{"images", DType::f32, {side, side, 3}}};
    model.loss = [](Graph&, std::span<const Tensor> inputs, const nn::Mode& mode) {
        const auto normed = [&](Tensor x, const char* name, nn::BatchNormOptions options) {
            return nn::batch_norm(x, name, mode, options);
        };
        Tensor x = normed(inputs[0], "bn1", {.momentum = 0.25});
        x = nn::linear(x, "mix", {.outputs = 64, .standard_deviation = 0.5});
        x = relu(normed(x, "bn2", {.momentum = 0.5, .unbiased = false}));
        x = nn::linear(x, "wide", {.outputs = 96, .standard_deviation = 0.1});
        x = normed(x, "bn3", {.momentum = 0.25});
        const Tensor y = nn::linear(mean(x, {1, 2}), "head", {.outputs = 1, .standard_deviation = 0.5}) - 1.0;
        return mean(y * y, {0, 1});
    };
    return model;
}

/// Images of micro-batches [first, first + count) of a step: a mean and a deviation of its own in each and
/// every channel.
std::vector<float> images_of(std::int64_t step, std::int64_t first, std::int64_t count) {
    std::vector<float> all;
    for (std::int64_t i = first * values_a_part; i < (first + count) * values_a_part; ++i) {
        const std::int64_t part = i / values_a_part, channel = i % 3;
        all.push_back(static_cast<float>(std::sin(static_cast<double>(7 * i + 11 * step)) *
                                             static_cast<double>(1 + channel + part) +
                                         static_cast<double>(5 * channel + 3 * part - step)));
    }
    return all;
}

struct ImageSplit {
    int ranks = 1;
    std::int64_t accumulate = 4;
    std::string policy = "fp32";
    States states = States::sharded;
    /// A step in which a micro-batch's images are not finite; -1: none.
    std::int64_t bad_step = -1, bad_part = 0;
    std::int64_t steps = 4;
    std::filesystem::path resume = {}, save = {};
    bool on_gpus = false;  ///< emulated ones, each rank its own
};

struct TrainedImages {
    std::vector<float> losses;
    std::vector<bool> applied;
    testing::StateBytes states;
    float evaluated = 0;
};

TrainedImages train_images_as(const ImageSplit& split, Ranks* ranks) {
    const auto device = testing::device_of({.on_gpus = split.on_gpus}, ranks);
    TrainerOptions options{
        .optimizer = sgd({.momentum = 0.9}), .batch = images_a_part, .accumulate = split.accumulate};
    options.loss_scale = default_loss_scale(find_policy(split.policy));
    options.policy = find_policy(split.policy);
    options.states = split.states;
    options.ranks = ranks;
    Trainer trainer(*device, normed_network(), options);
    if (!split.resume.empty()) resume_training(split.resume, trainer);
    const std::int64_t first = trainer.plan().options().first_micro_batch();
    TrainedImages trained;
    while (trainer.steps_done() < split.steps) {
        const std::int64_t step = trainer.steps_done(), bad = split.bad_part - first;
        std::vector<float> images = images_of(step, first, split.accumulate);
        const bool is_bad = step == split.bad_step && bad >= 0 && bad < split.accumulate;
        if (is_bad)
            images[static_cast<std::size_t>(bad * values_a_part + 5)] =
                std::numeric_limits<float>::quiet_NaN();
        const StepResult result = trainer.step({images}, 1e-2);
        trained.losses.push_back(result.applied ? result.loss : 0);
        trained.applied.push_back(result.applied);
        if (!result.applied) {
            EXPECT_EQ(trainer.first_non_finite({images}, 1e-2).has_value(), is_bad);
        }
    }
    if (ranks) require_same_states(*ranks, trainer.state(), split.steps);
    for (const State& state : trainer.state().states())
        if (state.kind != State::Kind::gradient && state.kind != State::Kind::derived)
            trained.states[state.name] = whole_state(state, trainer.state(), ranks);
    const std::vector<float> one = images_of(99, 0, 1);
    trained.evaluated = trainer.evaluate({one}).loss;
    if (!split.save.empty()) save_training(split.save, trainer);
    return trained;
}

TrainedImages train_images(const ImageSplit& split) {
    if (split.ranks == 1) return train_images_as(split, nullptr);
    std::vector<TrainedImages> all(static_cast<std::size_t>(split.ranks));
    run_good_ranks(split.ranks, [&](Ranks& ranks) {
        all[static_cast<std::size_t>(ranks.rank())] = train_images_as(split, &ranks);
    });
    for (const TrainedImages& each : all) EXPECT_TRUE(each.states == all[0].states) << "ranks differ";
    return all[0];
}

void expect_same_images(const TrainedImages& got, const TrainedImages& expected, const std::string& what) {
    EXPECT_EQ(got.losses, expected.losses) << what;
    EXPECT_EQ(got.applied, expected.applied) << what;
    EXPECT_EQ(got.evaluated, expected.evaluated) << what;
    ASSERT_EQ(got.states.size(), expected.states.size()) << what;
    for (const auto& [name, bytes] : expected.states)
        EXPECT_TRUE(got.states.at(name) == bytes) << what << ": " << name;
}

/// The head's bias is a parameter of one element, which an update in place must not read too late.
TEST(RanksTrainImages, OnGpusToTheBitsOfOne) {
    if (std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
    const TrainedImages alone = train_images({.accumulate = 2, .steps = 2, .on_gpus = true});
    for (const States states : {States::sharded, States::whole})
        expect_same_images(
            train_images({.ranks = 2, .accumulate = 1, .states = states, .steps = 2, .on_gpus = true}), alone,
            states == States::whole ? "whole" : "in parts");
    const TrainedImages on_cpu = train_images({.accumulate = 2, .steps = 2});
    for (std::size_t step = 0; step < 2; ++step) EXPECT_NEAR(alone.losses[step], on_cpu.losses[step], 1e-4);
    EXPECT_NE(alone.losses[0], alone.losses[1]);
}

TEST(RanksTrainImages, ToTheSameBitsHoweverAStepIsSplit) {
    for (const std::string policy : {"fp32", "bf16"}) {
        const TrainedImages alone = train_images({.policy = policy});
        for (const auto& [ranks, accumulate] : {std::pair{2, 2}, {4, 1}})
            for (const States states : {States::sharded, States::whole})
                expect_same_images(
                    train_images(
                        {.ranks = ranks, .accumulate = accumulate, .policy = policy, .states = states}),
                    alone, policy + " on " + std::to_string(ranks));
    }
}

TEST(RanksTrainImages, StatisticsFollowTheOrderOfMicroBatches) {
    // By hand, of the first norm, whose batches do not depend on weights; the mean of three ranks of three
    // micro-batches each, of two steps.
    const TrainedImages trained = train_images({.ranks = 3, .accumulate = 3, .steps = 2});
    const auto* means = reinterpret_cast<const float*>(trained.states.at("bn1.running_mean").data());
    for (std::int64_t c = 0; c < 3; ++c) {
        double expected = 0, backwards = 0;
        const auto mean_of = [&](std::int64_t step, std::int64_t part) {
            const std::vector<float> images = images_of(step, part, 1);
            double mean = 0;
            for (std::int64_t i = c; i < values_a_part; i += 3)
                mean += static_cast<double>(images[static_cast<std::size_t>(i)]);
            return mean / static_cast<double>(values_a_part / 3);
        };
        for (std::int64_t step = 0; step < 2; ++step)
            for (std::int64_t part = 0; part < 9; ++part) {
                expected = 0.75 * expected + 0.25 * mean_of(step, part);
                backwards = 0.75 * backwards + 0.25 * mean_of(step, 8 - part);
            }
        // 18 blends of a few roundings each, of numbers up to 40.
        const double bound = 40 * 18 * 4 * 0x1p-24;
        EXPECT_NEAR(static_cast<double>(means[c]), expected, bound);
        EXPECT_GT(std::abs(expected - backwards), 100 * bound) << "another order would be noticed";
    }
}

TEST(RanksTrainImages, ABadStepLeavesNoTraceWhoeverMadeIt) {
    for (const std::int64_t bad : testing::some_of<std::int64_t>({0, 1, 2, 3}, 3)) {
        const TrainedImages alone = train_images({.bad_step = 1, .bad_part = bad});
        ASSERT_EQ(alone.applied, (std::vector<bool>{true, false, true, true}));
        for (const auto& [ranks, accumulate] : {std::pair{2, 2}, {4, 1}})
            expect_same_images(
                train_images({.ranks = ranks, .accumulate = accumulate, .bad_step = 1, .bad_part = bad}),
                alone, "part " + std::to_string(bad) + " on " + std::to_string(ranks));
    }
}

TEST(RanksTrainImages, GoOnFromOneAnothersCheckpoints) {
    const TemporaryDirectory directory;
    const TrainedImages whole = train_images({.policy = "bf16"});
    for (const auto& [ranks, accumulate] : {std::pair{1, 4}, {2, 2}, {4, 1}})
        train_images({.ranks = ranks,
                      .accumulate = accumulate,
                      .policy = "bf16",
                      .steps = 2,
                      .save = directory.path() / std::to_string(ranks)});
    for (const char* from : {"1", "2", "4"})
        for (const auto& [ranks, accumulate] : {std::pair{1, 4}, {2, 2}, {4, 1}}) {
            if (ranks == std::stoi(from) && !testing::sweeps_are_whole()) continue;
            const TrainedImages resumed = train_images({.ranks = ranks,
                                                        .accumulate = accumulate,
                                                        .policy = "bf16",
                                                        .resume = directory.path() / from});
            EXPECT_TRUE(resumed.states == whole.states) << from << " on " << ranks;
        }
}

}  // namespace
}  // namespace mantissa
