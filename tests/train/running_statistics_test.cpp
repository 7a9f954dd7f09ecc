// Running statistics of batch normalisation: blended by every micro-batch of a good step, untouched by a bad
// one and by evaluation, saved and resumed.
#include "mantissa/train/running_statistics.h"
#include "mantissa/graph/graph.h"
#include "mantissa/runtime/non_finite.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/loss_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "mantissa/codegen/compiler.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/formats/safetensors.h"
#include "mantissa/nn/layers.h"
#include "mantissa/train/optimizer.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_checkpoint.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/training_states.h"

namespace mantissa {
namespace {

using testing::is_not_derived;
using testing::StateBytes;
using testing::states_of;

constexpr std::int64_t images_a_batch = 4, image_height = 3, image_width = 2, image_channels = 3;
constexpr std::int64_t rows = images_a_batch * image_height * image_width;
constexpr double momentum = 0.25;

/// Images [B, H, W, C] through two batch norms with a mix of channels between.
nn::Model two_norms() {
    nn::Model model;
    model.name = "two norms";
    model.inputs = {{"images", DType::f32, {image_height, image_width, image_channels}}};
    model.loss = [](Graph&, std::span<const Tensor> inputs, const nn::Mode& mode) {
        Tensor x = nn::batch_norm(inputs[0], "bn1", mode, {.momentum = momentum});
        x = nn::linear(x, "mix", {.outputs = 5, .standard_deviation = 0.5});
        x = relu(nn::batch_norm(x, "bn2", mode, {.momentum = 0.5, .unbiased = false}));
        const Tensor y = nn::linear(mean(x, {1, 2}), "head", {.outputs = 1, .standard_deviation = 0.5}) - 1.0;
        return mean(y * y, {0, 1});
    };
    return model;
}

struct NormTraining {
    const char* policy = "fp32";
    std::int64_t accumulate = 1;
    bool all_passes = false;
};

/// With every rung's way to run it: the policies, with and without what passes make of it.
std::vector<NormTraining> setups(std::int64_t accumulate) {
    std::vector<NormTraining> all = {{"fp32", accumulate, false}, {"bf16", accumulate, false}};
    if (codegen::Compiler::refusal().empty())
        all.insert(all.end(),
                   {{"fp32", accumulate, true}, {"bf16", accumulate, true}, {"fp16", accumulate, true}});
    return all;
}

Trainer trainer_of(Device& device, const NormTraining& setup) {
    TrainerOptions options;
    options.optimizer = sgd({.momentum = 0.9});
    options.batch = images_a_batch;
    options.accumulate = setup.accumulate;
    const Policy policy = find_policy(setup.policy);
    options.loss_scale = default_loss_scale(policy);
    options.policy = policy;
    if (!setup.all_passes) options.passes = {"simplify"};
    return Trainer(device, two_norms(), options);
}

/// Images of N micro-batches, each with a mean and a deviation of its own in every channel.
std::vector<float> images(std::int64_t micro_batches, int seed) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < micro_batches * rows * image_channels; ++i) {
        const std::int64_t part = i / (rows * image_channels) + seed, channel = i % image_channels;
        values.push_back(static_cast<float>(std::sin(static_cast<double>(7 * i + seed)) *
                                                static_cast<double>(1 + channel) +
                                            static_cast<double>(5 * channel + 3 * part)));
    }
    return values;
}

StateBytes running_of(const Trainer& trainer) {
    return states_of(trainer, [](const State& state) { return state.kind == State::Kind::running; });
}

/// Mean and unbiased variance of a channel of the images from `first` on.
std::pair<double, double> moments_of(const std::vector<float>& images, std::int64_t first, std::int64_t c) {
    const auto value = [&](std::int64_t row) {
        return static_cast<double>(images[static_cast<std::size_t>((first + row) * image_channels + c)]);
    };
    double mean = 0, squares = 0;
    for (std::int64_t row = 0; row < rows; ++row) mean += value(row) / rows;
    for (std::int64_t row = 0; row < rows; ++row) squares += (value(row) - mean) * (value(row) - mean);
    return {mean, squares / (rows - 1)};
}

TEST(RunningStatistics, FollowEachMicroBatchesBatchInTheirOrder) {
    const auto device = make_cpu_device({.threads = 2});
    for (const std::int64_t N : {1, 2, 3})
        for (const NormTraining& setup : setups(N)) {
            Trainer trainer = trainer_of(*device, setup);
            const std::vector<float> batch = images(N, 1);
            ASSERT_TRUE(trainer.step({batch}, 1e-2).applied);
            const std::vector<float> mean = trainer.state().read_f32("bn1.running_mean"),
                                     variance = trainer.state().read_f32("bn1.running_var");
            for (std::int64_t c = 0; c < image_channels; ++c) {
                double expected_mean = 0, expected_variance = 1;
                for (std::int64_t part = 0; part < N; ++part) {
                    const auto [of_mean, of_variance] = moments_of(batch, part * rows, c);
                    expected_mean += momentum * (of_mean - expected_mean);
                    expected_variance += momentum * (of_variance - expected_variance);
                }
                const auto at = static_cast<std::size_t>(c);
                EXPECT_NEAR(static_cast<double>(mean[at]), expected_mean, 1e-6 * (1 + expected_mean));
                EXPECT_NEAR(static_cast<double>(variance[at]), expected_variance, 1e-6 * expected_variance);
            }
        }
}

TEST(RunningStatistics, MicroBatchesHaveTheBitsOfAsManySteps) {
    const auto device = make_cpu_device({.threads = 2});
    for (const std::int64_t N : {2, 3}) {
        const std::vector<NormTraining> alone = setups(1), together = setups(N);
        for (std::size_t i = 0; i < alone.size(); ++i) {
            Trainer steps = trainer_of(*device, alone[i]), micro_batches = trainer_of(*device, together[i]);
            // At a rate of 0 the parameters stay, so that steps see the weights that micro-batches see.
            for (int round = 0; round < 2; ++round) {
                const std::vector<float> batch = images(N, round);
                for (std::int64_t part = 0; part < N; ++part)
                    steps.step(
                        {std::span(batch).subspan(static_cast<std::size_t>(part * rows * image_channels),
                                                  static_cast<std::size_t>(rows * image_channels))},
                        0);
                micro_batches.step({batch}, 0);
                EXPECT_TRUE(running_of(steps) == running_of(micro_batches))
                    << N << " " << alone[i].policy << alone[i].all_passes << " round " << round;
            }
        }
    }
}

TEST(RunningStatistics, ABadStepLeavesNoTraceWhicheverMicroBatchIsBad) {
    const auto device = make_cpu_device({.threads = 2});
    for (const std::int64_t N : {1, 2, 3})
        for (const NormTraining& setup : setups(N))
            for (std::int64_t bad = 0; bad < N; ++bad) {
                Trainer trainer = trainer_of(*device, setup), undisturbed = trainer_of(*device, setup);
                const std::vector<float> first = images(N, 1), last = images(N, 2);
                for (Trainer* each : {&trainer, &undisturbed}) ASSERT_TRUE(each->step({first}, 1e-2).applied);
                std::vector<float> spoilt = images(N, 3);
                spoilt[static_cast<std::size_t>(bad * rows * image_channels + 5)] =
                    std::numeric_limits<float>::quiet_NaN();
                const StateBytes before = running_of(trainer);
                ASSERT_FALSE(trainer.step({spoilt}, 1e-2).applied);
                EXPECT_TRUE(running_of(trainer) == before);
                EXPECT_TRUE(trainer.first_non_finite({spoilt}, 1e-2).has_value());
                EXPECT_TRUE(running_of(trainer) == before) << "looking for the cause changes nothing";
                // A loss scale is lowered by a bad step, which the other has not seen.
                if (std::string(setup.policy) == "fp16") continue;
                for (Trainer* each : {&trainer, &undisturbed}) ASSERT_TRUE(each->step({last}, 1e-2).applied);
                EXPECT_TRUE(states_of(trainer, is_not_derived) == states_of(undisturbed, is_not_derived))
                    << setup.policy << " of " << N << ", bad " << bad;
            }
}

TEST(RunningStatistics, AreWhatEvaluationNormalisesByAndLeavesAlone) {
    const auto device = make_cpu_device({.threads = 2});
    for (const NormTraining& setup : setups(2)) {
        Trainer trainer = trainer_of(*device, setup);
        const std::vector<float> batch = images(2, 1);
        const auto one = std::span(batch).first(static_cast<std::size_t>(rows * image_channels));
        const float untrained = trainer.evaluate({one}).loss;
        trainer.step({batch}, 0);
        const StateBytes before = states_of(trainer, is_not_derived);
        const float loss = trainer.evaluate({one}).loss;
        EXPECT_TRUE(states_of(trainer, is_not_derived) == before);
        EXPECT_NE(loss, untrained) << "the statistics have moved, the weights have not";
        for (const char* name : {"bn1", "bn2"}) {
            const std::string scope = name;
            std::vector<float> mean = trainer.state().read_f32(scope + ".running_mean");
            for (float& each : mean) each += 1;
            trainer.state().write(scope + ".running_mean", std::as_bytes(std::span<const float>(mean)));
        }
        EXPECT_NE(trainer.evaluate({one}).loss, loss);
    }
}

TEST(RunningStatistics, GoOnAfterAResumeToTheSameBits) {
    const auto device = make_cpu_device({.threads = 2});
    const TemporaryDirectory directory;
    int number = 0;
    for (const std::int64_t N : {1, 2})
        for (const NormTraining& setup : setups(N)) {
            Trainer whole = trainer_of(*device, setup), resumed = trainer_of(*device, setup);
            whole.step({images(N, 1)}, 1e-2);
            const std::filesystem::path place = directory / std::to_string(number++);
            save_training(place, whole);
            EXPECT_EQ(resume_training(place, resumed).warning, "");
            EXPECT_TRUE(running_of(resumed) == running_of(whole));
            for (int step = 2; step < 4; ++step)
                for (Trainer* each : {&whole, &resumed}) each->step({images(N, step)}, 1e-2);
            EXPECT_TRUE(states_of(resumed, is_not_derived) == states_of(whole, is_not_derived))
                << setup.policy << " of " << N;
        }
}

TEST(RunningStatistics, StandWithTheWeightsInFilesAndAreNoParameters) {
    const auto device = make_cpu_device({.threads = 1});
    const TemporaryDirectory directory;
    Trainer trainer = trainer_of(*device, {.policy = "fp32", .accumulate = 2});
    trainer.step({images(2, 1)}, 1e-2);
    save_training(directory / "saved", trainer);
    const SafetensorsFile file(directory / "saved" / "model.safetensors");
    std::map<std::string, TensorView> tensors;
    for (const TensorView& tensor : file.views()) tensors[tensor.name] = tensor;
    for (const char* name : {"bn1.running_mean", "bn1.running_var", "bn2.running_mean", "bn2.running_var",
                             "bn1.weight", "bn2.bias"}) {
        ASSERT_TRUE(tensors.contains(name)) << name;
        const std::vector<std::byte> value = trainer.state().read(name);
        EXPECT_EQ(std::memcmp(tensors[name].data, value.data(), value.size()), 0) << name;
    }
    EXPECT_EQ(tensors.size(), 12u) << "what is kept between micro-batches is not saved";
    // Weights and biases of two norms of 3 and 5 channels, of 3 x 5 and of 5 x 1.
    EXPECT_EQ(trainer.plan().facts().parameters, 2 * (3 + 5) + 3 * 5 + 5 + 5 + 1);
    for (const State& state : trainer.state().states())
        EXPECT_FALSE(state.kind == State::Kind::optimizer && state.name.find("running") != std::string::npos)
            << state.name;
}

}  // namespace
}  // namespace mantissa
