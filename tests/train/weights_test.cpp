// Weights by name: into and out of a trainer, strictly or not, with all that does not fit in one error.
#include "mantissa/graph/graph.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/model_file.h"

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/nn/layers.h"
#include "mantissa/train/ema.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::error_of;

nn::Model classifier(std::int64_t classes, const char* head = "head") {
    nn::Model model{.name = "network", .inputs = {{"x", DType::f32, {3}}, {"y", DType::i32, {}}}};
    model.loss = [classes, head](Graph&, std::span<const Tensor> in, const nn::Mode&) {
        const Tensor hidden = tanh(nn::linear(in[0], "hidden", {.outputs = 5}));
        return cross_entropy(nn::linear(hidden, head, {.outputs = classes}), in[1]);
    };
    return model;
}

TEST(WeightsOfATrainer, GoToAFileAndBack) {
    const TemporaryDirectory directory;
    const auto device = make_cpu_device({.threads = 1});
    const std::vector<float> x{1, 2, 3, 4, 5, 6};
    const std::vector<std::int32_t> y{0, 1};
    Trainer trained(*device, classifier(2), {.batch = 2, .ema_decay = 0.5}),
        other(*device, classifier(2), {.batch = 2, .seed = 7});
    for (int step = 0; step < 3; ++step) trained.step({x, y}, 0.1);
    const std::string file = (directory / "w.safetensors").string();
    trained.save_weights(file);
    EXPECT_EQ(other.load_weights(file).count(), 0u);
    EXPECT_EQ(other.evaluate({x, y}).loss, trained.evaluate({x, y}).loss);
    const AveragedWeights averaged(trained.state());
    EXPECT_NE(other.evaluate({x, y}).loss, trained.evaluate({x, y}).loss);
    trained.save_weights(file);
    other.load_weights(file);
    EXPECT_EQ(other.evaluate({x, y}).loss, trained.evaluate({x, y}).loss);
}

TEST(WeightsOfATrainer, WhatDoesNotFitIsNamedInOneErrorOrLeftOut) {
    const TemporaryDirectory directory;
    const auto device = make_cpu_device({.threads = 1});
    const std::string file = (directory / "w.safetensors").string();
    const Trainer two(*device, classifier(2), {.batch = 2});
    two.save_weights(file);
    Trainer three(*device, classifier(3), {.batch = 2, .seed = 7}),
        named(*device, classifier(2, "classes"), {.batch = 2});
    const auto before = three.state().read("hidden.weight"), head = three.state().read("head.weight");
    const std::string unlike =
        "\"head.weight\" has shape [2, 5], expected [3, 5]; \"head.bias\" has shape [2], "
        "expected [3]";
    EXPECT_EQ(error_of<UserError>([&] { three.load_weights(file); }),
              file + ": 2 tensors do not fit: " + unlike + "; expected a checkpoint of this model");
    EXPECT_TRUE(three.state().read("hidden.weight") == before);
    const UnfitWeights left = three.load_weights(file, Match::by_name);
    EXPECT_EQ(left.text(), unlike);
    EXPECT_TRUE(three.state().read("hidden.weight") == two.state().read("hidden.weight"));
    EXPECT_TRUE(three.state().read("head.weight") == head);

    const std::string unknown =
        "missing \"classes.weight\", \"classes.bias\"; unknown \"head.bias\", "
        "\"head.weight\"";
    EXPECT_EQ(error_of<UserError>([&] { named.load_weights(file); }),
              file + ": 4 tensors do not fit: " + unknown + "; expected a checkpoint of this model");
    EXPECT_EQ(named.load_weights(file, Match::by_name).text(), unknown);
}

TEST(WeightsOfATrainer, OfManyThatDoNotFitThreeOfAKindAreNamed) {
    const UnfitWeights many{.missing = {"a", "b", "c", "d"},
                            .unknown = {"e", "f", "g"},
                            .unlike = {"h is i32", "i is i32", "j is i32", "k is i32", "l is i32"}};
    EXPECT_EQ(many.text(),
              "missing \"a\", \"b\", \"c\" and 1 more; unknown \"e\", \"f\", \"g\"; h is i32; i is i32; "
              "j is i32; and 2 more");
}

}  // namespace
}  // namespace mantissa
