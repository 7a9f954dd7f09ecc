// Networks with convolutions train below sixteen bits: to the same bits on any number of threads and after a
// checkpoint, under every policy.
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/nn/layers.h"
#include "mantissa/train/optimizer.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_checkpoint.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/training_states.h"

namespace mantissa {
namespace {

constexpr std::int64_t pixels = 9, pictures = 17;

/// A first layer, two convolutions that are rounded, and a head.
nn::Model convolutions_and_norms() {
    nn::Model model{.name = "convolutions",
                    .inputs = {nn::numbers("images", {pixels, pixels, 3}), nn::ids("classes")}};
    model.loss = [](Graph&, std::span<const Tensor> inputs, const nn::Mode& mode) {
        Tensor x = inputs[0];
        for (const char* name : {"first", "second", "third"})
            x = relu(nn::batch_norm(nn::conv2d(x, name, {.outputs = 20, .padding = 1}),
                                    std::string(name) + "_norm", mode));
        return cross_entropy(nn::linear(mean(x, {1, 2}), "head", {.outputs = 4}), inputs[1]);
    };
    return model;
}

Trainer convolutions_under(Device& device, const std::string& policy) {
    return {device,
            convolutions_and_norms(),
            {.optimizer = sgd({.momentum = 0.9}), .batch = pictures, .accumulate = 2, .policy = policy}};
}

std::vector<float> losses_of_pictures(Trainer& trainer, std::int64_t last) {
    std::vector<float> losses;
    while (trainer.steps_done() < last) {
        std::vector<float> images;
        std::vector<std::int32_t> classes;
        for (std::int64_t n = 0; n < 2 * pictures; ++n) {
            classes.push_back(static_cast<std::int32_t>((n + trainer.steps_done()) % 4));
            for (std::int64_t i = 0; i < pixels * pixels * 3; ++i)
                images.push_back(static_cast<float>(
                    std::sin(static_cast<double>(i * (classes.back() + 2) + trainer.steps_done()))));
        }
        losses.push_back(trainer.step({images, classes}, 1e-2).loss);
    }
    return losses;
}

TEST(RoundedConvolutions, GiveTheSameBitsOnThreadsAndAfterACheckpoint) {
    const auto one = make_cpu_device({.threads = 1}), three = make_cpu_device({.threads = 3});
    std::vector<float> of_bf16;
    for (const std::string policy : {"bf16", "fp8", "fp8-delayed", "fp8-block", "mxfp8", "mxfp4", "nvfp4"}) {
        Trainer whole = convolutions_under(*three, policy), first = convolutions_under(*one, policy),
                second = convolutions_under(*three, policy);
        const std::vector<float> losses = losses_of_pictures(whole, 4);
        for (const float loss : losses) EXPECT_TRUE(std::isfinite(loss)) << policy;
        if (policy == "bf16") of_bf16 = losses;
        EXPECT_EQ(losses == of_bf16, policy == "bf16") << policy;
        EXPECT_EQ(losses_of_pictures(first, 2), std::vector<float>(losses.begin(), losses.begin() + 2))
            << policy;
        const TemporaryDirectory directory;
        save_training(directory / "run", first);
        EXPECT_EQ(resume_training(directory / "run", second).warning, "");
        EXPECT_EQ(losses_of_pictures(second, 4), std::vector<float>(losses.begin() + 2, losses.end()))
            << policy;
        EXPECT_EQ(testing::states_of(second), testing::states_of(whole)) << policy;
    }
}

}  // namespace
}  // namespace mantissa
