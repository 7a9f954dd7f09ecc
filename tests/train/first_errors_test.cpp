// Mistakes of people in their first networks. Each error names the operation, file and line, or the input,
// state or field; tests/graph/refusals_test.cpp has more of operations.
#include <gtest/gtest.h>

#include <regex>

#include "mantissa/base/error.h"
#include "mantissa/device/devices.h"
#include "mantissa/nn/layers.h"
#include "mantissa/nn/losses.h"
#include "mantissa/train/predictor.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_checkpoint.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using Inputs = std::span<const Tensor>;

template <class Body>
std::string said(Body&& body) {
    const std::string text = testing::error_of<UserError>(body);
    return std::regex_replace(text, std::regex("[^ ]*first_errors_test.cpp:[0-9]+"), "LINE");
}

/// x [8, 8, 3] and a class y, whose loss is what `loss` makes of them.
template <class Loss>
nn::Model model_of(Loss loss) {
    return {.name = "m",
            .inputs = {{"x", DType::f32, {8, 8, 3}}, {"y", DType::i32}},
            .loss = [loss](Graph&, Inputs in, const nn::Mode&) { return loss(in); }};
}

/// The message about the model in training, at batch 4.
template <class Loss>
std::string said_of(Loss loss) {
    return said([&] { Trainer(cpu(), model_of(loss), {.batch = 4}); });
}

Tensor layer(const Tensor& x, const char* name = "flat", std::int64_t outputs = 3) {
    return nn::linear(reshape(x, {x.dim(0), -1}), name, {.outputs = outputs});
}

TEST(FirstErrors, LayersAndLosses) {
    EXPECT_EQ(said_of([](Inputs in) { return cross_entropy(layer(in[0], "h", 0), in[1]); }),
              "linear (traced in h at LINE): outputs must be 1 or more, got 0; set them");
    EXPECT_EQ(said_of([](Inputs in) { return cross_entropy(layer(nn::conv2d(in[0], "c", {})), in[1]); }),
              "conv2d (traced in c at LINE): outputs must be 1 or more, got 0; set them");
    EXPECT_EQ(
        said_of([](Inputs in) {
            const nn::Mode mode;
            return cross_entropy(layer(nn::batch_norm(nn::batch_norm(in[0], "n", mode), "n", mode)), in[1]);
        }),
        "there are two states named 'n.weight': the first (traced in n at LINE), the second (traced in n "
        "at LINE); give the layers different names, or an nn::Scope around one (nn.scope in "
        "Python)");
    EXPECT_EQ(said_of([](Inputs in) { return cross_entropy(layer(Tensor()), in[1]); }),
              "an empty Tensor (traced at LINE): it has no graph, type or shape; assign the result of an "
              "operation to it first");
    EXPECT_EQ(said_of([](Inputs in) { return layer(in[0]); }),
              "model m: its loss must be one floating number, got f32[4, 3]; take the mean");
    EXPECT_EQ(said_of([](Inputs in) { return mean(in[0]); }),
              "model m has no parameters, so there is nothing to train");
}

TEST(FirstErrors, ShapesAreThoseOfTheBatch) {
    EXPECT_EQ(
        said_of([](Inputs in) {
            const Tensor a = nn::conv2d(in[0], "a", {.outputs = 16, .padding = 1});
            return mean(a + nn::conv2d(in[0], "b", {.outputs = 32, .padding = 1}));
        }),
        "add (traced at LINE): shapes [4, 8, 8, 16] and [4, 8, 8, 32] do not fit: axis 1 from the end is "
        "16 and 32");
    EXPECT_EQ(said_of([](Inputs in) {
                  return mean(layer(reshape(in[0], {4, 384})));
              }),
              "reshape (traced at LINE): f32[4, 8, 8, 3] has 768 elements, [4, 384] has 1536");
    EXPECT_EQ(said_of([](Inputs in) {
                  return cross_entropy(layer(reshape(in[0], {4, 192})), in[1]);
              }),
              "no error");
    EXPECT_EQ(said_of([](Inputs in) {
                  return mean(layer(in[0]), {1, 4});
              }),
              "mean (traced at LINE): axis 4 is outside f32[4, 3]");
    EXPECT_EQ(said_of([](Inputs in) { return mean(layer(in[0]) * in[1]); }),
              "mul (traced at LINE): operands must have one type, got f32[4, 3] and i32[4]");
    EXPECT_EQ(said_of([](Inputs in) { return nn::mse_loss(layer(in[0], "h", 1), cast(in[1], DType::f32)); }),
              "mse_loss at LINE: the prediction is f32[4, 1], the target f32[4]; expected one shape, reshape "
              "one of them");
    EXPECT_EQ(said_of([](Inputs in) { return cross_entropy(layer(in[0]), layer(in[0], "other")); }),
              "cross_entropy (traced at LINE): operand 1 must be i32, got f32[4, 3]");
}

/// A model of three classes whose output is another layer than its loss is made of.
nn::Model with_output(const char* name, std::int64_t outputs) {
    nn::Model model = model_of([](Inputs in) { return cross_entropy(layer(in[0]), in[1]); });
    model.output.trace = [=](Graph&, Inputs in, const nn::Mode&) { return layer(in[0], name, outputs); };
    return model;
}

TEST(FirstErrors, WhatIsPredictedIsWhatWasTrained) {
    const std::vector<float> x(4 * 192);
    const auto predict = [&](const nn::Model& model) {
        return said([&] {
            Trainer trainer(cpu(), model, {.batch = 4});
            Predictor(trainer).predict({x});
        });
    };
    EXPECT_EQ(predict(with_output("flat", 3)), "no error");
    EXPECT_EQ(
        predict(with_output("typo", 3)),
        "the output of model m (traced in typo at LINE): 'typo.weight' was not trained: the loss has no "
        "state of that name");
    EXPECT_EQ(predict(with_output("flat", 4)),
              "state 'flat.weight' is f32[4, 192] in this graph, but f32[3, 192] where it is kept");
}

TEST(FirstErrors, WhatAStepIsGiven) {
    const nn::Model model = with_output("flat", 3);
    Trainer trainer(cpu(), model, {.batch = 4});
    const std::vector<float> x(4 * 192);
    const std::vector<std::int32_t> y(4), few(3);
    const auto step = [&](const Batch& batch) { return said([&] { trainer.step(batch, 0.1); }); };
    EXPECT_EQ(step({x, y}), "no error");
    EXPECT_EQ(step({std::vector<double>(4 * 192), y}), "model m: input 'x' is f32, got f64");
    EXPECT_EQ(step({x}), "model m takes 2 inputs, got 1; 'y' is missing");
    EXPECT_EQ(step({x, few}), "model m: input 'y' of a step has 4 examples of i32[], 4 numbers, got 3");
}

/// Where the loss is fused, no kernel looks at targets: a class that there is not counted as none.
TEST(FirstErrors, IdsButTheIgnoredOneAreRefusedOutOfRange) {
    for (const bool weighted : {false, true})
        for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
            const nn::Model model{
                .name = "m",
                .inputs = {{"x", DType::f32, {4}}, {"y", DType::i32, {}}},
                .loss = [=](Tensor x, Tensor y) {
                    CrossEntropyOptions options{.ignore_index = -100, .reduction = reduction};
                    if (weighted) options.class_weights = constant(x.graph(), 2, DType::f32, {3});
                    return mean(cross_entropy(nn::linear(x, "classes", {.outputs = 3}), y, options));
                }};
            Trainer trainer(cpu(), model, {.batch = 2});
            const auto step = [&](std::int32_t second) {
                const std::vector<float> x(8, 1);
                return said([&] { trainer.step({x, std::vector<std::int32_t>{0, second}}, 0.1); });
            };
            EXPECT_EQ(step(2), "no error");
            EXPECT_EQ(step(-100), "no error");
            for (const std::int32_t wrong : {3, -1, -5, 1000})
                EXPECT_EQ(step(wrong).find("cross_entropy: target " + std::to_string(wrong) +
                                           " at position 1 is out of range, expected 0 to 2, or -100"),
                          0u)
                    << step(wrong);
        }
}

TEST(FirstErrors, ClassesAndIdsOutOfRangeWhateverThePasses) {
    const nn::Model model{.name = "m",
                          .inputs = {{"ids", DType::i32, {2}}, {"y", DType::i32, {}}},
                          .loss = [](Tensor ids, Tensor y) {
                              const Tensor table = nn::parameter(ids.graph(), "table", {5, 8}, {});
                              const Tensor x = reshape(embedding(table, ids), {-1, 16});
                              return cross_entropy(nn::linear(x, "classes", {.outputs = 3}), y);
                          }};
    const std::string class_3 =
        "cross_entropy: target 3 at position 1 is out of range, expected 0 to 2; are "
        "there more classes than scores, or was the text tokenized with another "
        "vocabulary?";
    const std::string id_5 =
        "embedding: id 5 at position 2 is out of range, expected 0 to 4; is the table too "
        "short, or was the text tokenized with another vocabulary?";
    const std::vector<std::int32_t> ids{0, 1, 2, 4}, large_ids{0, 1, 5, 4}, y{0, 2}, large{0, 3}, none{0, -1};
    for (const bool all : {false, true}) {
        TrainerOptions options{.batch = 2};
        if (!all) options.passes = {"simplify"};
        Trainer trainer(cpu(), model, options);
        const auto step = [&](const Batch& batch) { return said([&] { trainer.step(batch, 0.1); }); };
        EXPECT_EQ(step({ids, y}), "no error");
        EXPECT_EQ(step({ids, large}), class_3) << all;
        EXPECT_EQ(step({large_ids, y}), id_5) << all;
        EXPECT_NE(step({ids, none}), "no error") << all;
        EXPECT_EQ(said([&] { trainer.evaluate({ids, large}); }), class_3) << all;
        EXPECT_NE(said([&] { trainer.evaluate({ids, none}); }), "no error") << all;
    }
}

TEST(FirstErrors, ARunOfAnotherWidthIsNotGoneOnWith) {
    const TemporaryDirectory directory;
    const auto of_width = [](std::int64_t outputs) {
        return model_of([=](Inputs in) { return cross_entropy(layer(in[0], "flat", outputs), in[1]); });
    };
    Trainer narrow(cpu(), of_width(3), {.batch = 4}), wide(cpu(), of_width(5), {.batch = 4});
    save_training(directory.path() / "run", narrow, {});
    EXPECT_EQ(said([&] { resume_training(directory.path() / "run", wide, {}); }),
              (directory.path() / "run/model.safetensors").string() +
                  ": 2 tensors do not fit: \"flat.weight\" has shape [3, 192], expected [5, 192]; "
                  "\"flat.bias\" has shape "
                  "[3], expected [5]; expected a checkpoint of this model");
}

}  // namespace
}  // namespace mantissa
