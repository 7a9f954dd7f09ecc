// Predictions of any number of examples, on a trainer's parameters and on those of a file.
#include "mantissa/train/predictor.h"
#include "mantissa/graph/graph.h"
#include "mantissa/runtime/state_block.h"

#include <gtest/gtest.h>

#include <cmath>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/nn/layers.h"
#include "mantissa/nn/losses.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::error_of;

/// x [3] -> tanh -> [2], and a loss against y.
nn::Model small_mlp() {
    const auto output = [](std::span<const Tensor> inputs) {
        return nn::linear(tanh(nn::linear(inputs[0], "hidden", {.outputs = 40})), "output", {.outputs = 2});
    };
    nn::Model model{.name = "small", .inputs = {{"x", DType::f32, {3}}, {"y", DType::f32, {2}}}};
    model.loss = [output](Graph&, std::span<const Tensor> inputs, const nn::Mode&) {
        const Tensor error = output(inputs) - inputs[1];
        return mean(error * error, {0, 1});
    };
    model.output.trace = [output](Graph&, std::span<const Tensor> inputs, const nn::Mode&) {
        return output(inputs);
    };
    return model;
}

std::vector<float> sines(std::size_t count, float step) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = std::sin(step * static_cast<float>(i));
    return values;
}

/// x -> y in FP64, from the parameters as they are.
std::vector<double> reference(const StateBlock& state, std::span<const float> x) {
    const auto w1 = state.read_f32("hidden.weight"), b1 = state.read_f32("hidden.bias"),
               w2 = state.read_f32("output.weight"), b2 = state.read_f32("output.bias");
    std::vector<double> y;
    for (std::size_t row = 0; row < x.size() / 3; ++row) {
        std::vector<double> hidden(40);
        for (std::size_t h = 0; h < 40; ++h) {
            hidden[h] = static_cast<double>(b1[h]);
            for (std::size_t i = 0; i < 3; ++i)
                hidden[h] += static_cast<double>(x[3 * row + i]) * static_cast<double>(w1[3 * h + i]);
            hidden[h] = std::tanh(hidden[h]);
        }
        for (std::size_t o = 0; o < 2; ++o) {
            y.push_back(static_cast<double>(b2[o]));
            for (std::size_t h = 0; h < 40; ++h) y.back() += hidden[h] * static_cast<double>(w2[40 * o + h]);
        }
    }
    return y;
}

TEST(Predictor, GivesEachOfAnyNumberOfExamplesItsOwnNumbers) {
    const auto device = make_cpu_device({});
    // Rounded to 24 bits, and operands to 8: a few units of the last place of sums of about one.
    const std::pair<const char*, double> policies[] = {{"fp32", 1e-6}, {"bf16", 2e-2}};
    for (const auto& [policy, tolerance] : policies) {
        Trainer trainer(*device, small_mlp(), {.batch = 32, .policy = policy});
        Predictor predictor(trainer);
        EXPECT_EQ(predictor.values_per_example(), 2);
        for (const std::size_t count : {1U, 7U, 33U, 100U, 1000U}) {
            const std::vector<float> x = sines(3 * count, 0.37f);
            const std::vector<float> all = predictor.predict({x});
            const std::vector<double> exact = reference(trainer.state(), x);
            ASSERT_EQ(all.size(), 2 * count);
            for (std::size_t i = 0; i < all.size(); ++i)
                ASSERT_NEAR(static_cast<double>(all[i]), exact[i], tolerance)
                    << policy << ", number " << i << " of " << count << " examples";
            // Whoever stands beside it, a row of a batch has the same bits.
            if (count < 32) continue;
            const std::vector<float> again = predictor.predict({std::span(x).first(3 * 31)});
            for (std::size_t i = 0; i < again.size(); ++i) ASSERT_EQ(again[i], all[i]) << policy;
        }
    }
}

TEST(Predictor, FollowsTheTrainersParameters) {
    const auto device = make_cpu_device({});
    for (const char* policy : {"fp32", "bf16"}) {
        Trainer trainer(*device, small_mlp(), {.batch = 8, .policy = policy});
        Predictor predictor(trainer);
        const std::vector<float> x = sines(24, 0.9f), y = sines(16, 0.4f), one = sines(3, 0.7f);
        const std::vector<float> before = predictor.predict({x}), one_before = predictor.predict({one});
        for (int step = 0; step < 20; ++step) trainer.step({x, y}, 0.05);
        const std::vector<float> after = predictor.predict({x}), one_after = predictor.predict({one});
        EXPECT_NE(before, after) << policy;
        EXPECT_NE(one_before, one_after) << policy;
        double error = 0;
        for (std::size_t i = 0; i < y.size(); ++i)
            error += std::pow(static_cast<double>(after[i] - y[i]), 2) / static_cast<double>(y.size());
        EXPECT_NEAR(error, static_cast<double>(trainer.evaluate({x, y}).loss), 1e-6) << policy;
        EXPECT_EQ(predictor.predict({x}), after) << "predicting changes nothing";
    }
}

/// The output of one example can be padded, as 1,000 columns are; that of two would be cut out by a copy.
TEST(Predictor, PadsNothingThatItsParametersDoNot) {
    const auto device = make_cpu_device({});
    const auto scores = [](Graph&, std::span<const Tensor> in, const nn::Mode&) {
        return nn::linear(in[0], "scores", {.outputs = 1000});
    };
    nn::Model model = small_mlp();
    model.inputs = {{"x", DType::f32, {3}}, {"y", DType::f32, {1000}}};
    model.loss = [scores](Graph& graph, std::span<const Tensor> in, const nn::Mode& mode) {
        return nn::mse_loss(scores(graph, in, mode), in[1]);
    };
    model.output.trace = scores;
    const std::vector<float> x = sines(6, 0.3f), y = sines(1000, 0.3f);
    for (const char* policy : {"fp32", "bf16"})
        for (const std::int64_t batch : {1, 2}) {
            Trainer trainer(*device, model, {.batch = batch, .policy = policy});
            Predictor predictor(trainer);
            const std::vector<float> both = predictor.predict({x});
            const std::vector<float> one = predictor.predict({std::span(x).first(3)});
            ASSERT_EQ(one.size(), 1000U);
            for (std::size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(one[i], both[i], 1e-2);
            EXPECT_TRUE(std::isfinite(trainer.evaluate({std::span(x).first(3), y}).loss));
        }
}

TEST(Predictor, RunsOnParametersOfAnother) {
    const auto device = make_cpu_device({});
    Trainer trainer(*device, small_mlp(), {.batch = 4, .policy = "fp32"});
    const std::vector<float> x = sines(15, 0.3f);
    Predictor predictor(*device, small_mlp(), {.batch = 4});
    StateBlock weights(*device, predictor.parameters());
    for (const State& state : weights.states()) weights.write(state.name, trainer.state().read(state.name));
    predictor.bind(weights);
    EXPECT_EQ(predictor.predict({x}), Predictor(trainer).predict({x}));
}

TEST(Predictor, RunsOnWeightsInAFile) {
    const auto device = make_cpu_device({});
    const TemporaryDirectory directory;
    Trainer trainer(*device, small_mlp(), {.batch = 4});
    const std::vector<float> x = sines(15, 0.3f);
    trainer.save_weights(directory / "small.safetensors");
    trainer.save(directory / "run");
    for (const char* file : {"small.safetensors", "run"}) {
        Predictor predictor(*device, small_mlp(), directory / file, {.batch = 4});
        EXPECT_EQ(predictor.predict({x}), Predictor(trainer).predict({x})) << file;
    }
}

TEST(Predictor, SaysWhatIsMissingOrDoesNotFit) {
    const auto device = make_cpu_device({});
    const auto made = [&](nn::Model model) {
        return error_of([&] { Predictor(*device, model, {.batch = 4}); });
    };
    nn::Model model = small_mlp();
    model.output = {};
    EXPECT_EQ(made(model), "model small predicts nothing: give it an output");
    model = small_mlp();
    model.output.inputs = 3;
    EXPECT_EQ(made(model), "model small: its output is made of 3 inputs, but it has 2");
    model = small_mlp();
    model.output.trace = [](Graph&, std::span<const Tensor> inputs, const nn::Mode&) {
        return mean(inputs[0], {0, 1});
    };
    EXPECT_EQ(made(model),
              "model small: its output must be floating, with a row for each of 4 examples, got f32[]");
    Predictor predictor(*device, small_mlp(), {.batch = 4});
    StateBlock weights(*device, predictor.parameters());
    predictor.bind(weights);
    const std::vector<float> x(7);
    EXPECT_NE(error_of([&] { predictor.predict({x}); }).find("x"), std::string::npos);
    EXPECT_NE(error_of([&] { predictor.predict({std::span(x).first(0)}); }).find("x"), std::string::npos);
    EXPECT_EQ(error_of([&] { Predictor(*device, small_mlp(), {.batch = 0}); }),
              "a prediction takes 1 example or more at a time, got 0");
}

TEST(Accuracy, TheFirstOfTheGreatestScoresIsTheAnswer) {
    const std::vector<float> scores = {1, 3, 2, /**/ 5, 5, 4, /**/ -1, NAN, -2};
    EXPECT_EQ(accuracy(scores, std::vector<std::int32_t>{1, 0, 0}), 1);
    EXPECT_NEAR(accuracy(scores, std::vector<std::int32_t>{1, 1, 1}), 1.0 / 3, 1e-12);
    EXPECT_EQ(accuracy(std::vector<float>{NAN, NAN}, std::vector<std::int32_t>{0}), 0);
    EXPECT_EQ(error_of([&] {
                  accuracy(scores, std::vector<std::int32_t>{0, 3, 0});
              }),
              "example 1 is of class 3, but there are scores of 3 classes");
    EXPECT_EQ(error_of([&] {
                  accuracy(scores, std::vector<std::int32_t>{0, 1});
              }),
              "9 scores of 2 examples: expected as many of each");
}

}  // namespace
}  // namespace mantissa
