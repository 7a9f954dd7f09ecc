// Batches of other shapes than a trainer was made for: short last ones, more examples, other lengths. Their
// steps are planned when they come, on one state. What is right is computed here in FP64, by loops.
#include "mantissa/train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "mantissa/device/devices.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/layers.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/predictor.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/error_of.h"

namespace mantissa {
namespace {

constexpr std::int64_t C = 3;
constexpr double rate = 0.1;

/// The mean over all of (sum over the last axis of x w - y)^2 where x is [B, T, C] and y [B, T].
nn::Model lines(std::int64_t T) {
    nn::Model model{.name = "lines", .inputs = {nn::numbers("x", {T, C}), nn::numbers("y", {T})}};
    const auto made = [](Tensor x) { return reshape(nn::linear(x, "line", {.outputs = 1}), {x.dim(0), -1}); };
    model.shapes_vary = true;
    model.loss = [made](Tensor x, Tensor y) {
        const Tensor off = made(x) - y;
        return mean(off * off);
    };
    model.output = {.name = "line", .inputs = 1, .trace = [made](Tensor x) { return made(x); }};
    return model;
}

/// Numbers of so many examples of so many lines.
struct Lines {
    std::int64_t examples, T;
    std::vector<float> x, y;

    Lines(std::int64_t count, std::int64_t length, int seed) : examples(count), T(length) {
        for (std::int64_t i = 0; i < count * length * C; ++i)
            x.push_back(static_cast<float>(std::sin(0.7 * static_cast<double>(i + seed))));
        for (std::int64_t i = 0; i < count * length; ++i)
            y.push_back(static_cast<float>(std::cos(0.3 * static_cast<double>(i * seed))));
    }
    Batch batch() const {
        return {HostValues(DType::f32, std::as_bytes(std::span(x)), Shape{examples, T, C}),
                HostValues(DType::f32, std::as_bytes(std::span(y)), Shape{examples, T})};
    }
};

/// The same line in FP64, by gradients of the mean.
struct PlainLine {
    std::vector<double> w;
    double bias = 0;

    explicit PlainLine(const Trainer& trainer) {
        for (const float weight : trainer.state().read_f32("line.weight")) w.push_back(weight);
        bias = trainer.state().read_f32("line.bias")[0];
    }
    double step(const Lines& lines) {
        std::vector<double> dw(C);
        double db = 0, loss = 0;
        const auto n = static_cast<double>(lines.y.size());
        for (std::size_t i = 0; i < lines.y.size(); ++i) {
            double off = bias - static_cast<double>(lines.y[i]);
            for (std::size_t c = 0; c < C; ++c) off += w[c] * static_cast<double>(lines.x[i * C + c]);
            loss += off * off / n;
            db += 2 * off / n;
            for (std::size_t c = 0; c < C; ++c)
                dw[c] += 2 * off * static_cast<double>(lines.x[i * C + c]) / n;
        }
        for (std::size_t c = 0; c < C; ++c) w[c] -= rate * dw[c];
        bias -= rate * db;
        return loss;
    }
};

TEST(BatchShapes, StepsOfAnyShapeAreOfOneState) {
    for (const std::int64_t accumulate : {1, 3}) {
        Trainer trainer(cpu(), lines(5), {.optimizer = sgd(), .batch = 4, .accumulate = accumulate});
        PlainLine plain(trainer);
        const std::int64_t all = 4 * accumulate;
        // Whole batches, short ones, one of one example, more than a whole one, other lengths.
        for (const auto& [examples, T] : std::vector<std::pair<std::int64_t, std::int64_t>>{{all, 5},
                                                                                            {all - 2, 5},
                                                                                            {1, 5},
                                                                                            {all + 3, 5},
                                                                                            {all, 2},
                                                                                            {all - 1, 9},
                                                                                            {all, 5},
                                                                                            {all - 2, 5}}) {
            const Lines batch(examples, T, static_cast<int>(examples + T));
            EXPECT_NEAR(trainer.step(batch.batch(), rate).loss, plain.step(batch), 2e-6)
                << accumulate << ": " << examples << ", " << T;
            EXPECT_NEAR(trainer.state().read_f32("line.bias")[0], plain.bias, 2e-6);
        }
        EXPECT_EQ(trainer.steps_done(), 8);
        EXPECT_EQ(trainer.planned_shapes(), 6U);
        Predictor predictor(trainer);
        for (const std::int64_t T : {5, 7, 5, 1}) {
            const Lines batch(6, T, 3);
            const Batch given = batch.batch();
            const std::vector<float> made = predictor.predict(Batch({given.values()[0]}));
            ASSERT_EQ(made.size(), static_cast<std::size_t>(6 * T));
            double expected = plain.bias;
            for (std::size_t c = 0; c < C; ++c) expected += plain.w[c] * static_cast<double>(batch.x[C + c]);
            EXPECT_NEAR(made[1], expected, 2e-6) << T;
            EXPECT_NEAR(trainer.evaluate(batch.batch()).loss, PlainLine(trainer).step(batch), 2e-6) << T;
        }
    }
}

TEST(BatchShapes, TheOneNotUsedForLongestGoesFirst) {
    Trainer trainer(cpu(), lines(5), {.optimizer = sgd(), .batch = 4, .plans = 3});
    PlainLine plain(trainer);
    for (const std::int64_t T : {1, 2, 1, 3, 4, 1, 5, 2, 9, 30, 2}) {
        const Lines batch(4, T, static_cast<int>(T));
        EXPECT_NEAR(trainer.step(batch.batch(), rate).loss, plain.step(batch), 3e-6) << T;
        EXPECT_LE(trainer.planned_shapes(), 3U);
    }
}

/// Weights in 16 bits, moments, averages and the loss scale are those of one run.
TEST(BatchShapes, AllStatesAreShared) {
    for (const char* const policy : {"fp32", "bf16", "fp16"}) {
        TrainerOptions options{.batch = 4, .policy = policy, .ema_decay = 0.9};
        Trainer several(cpu(), lines(5), options), one(cpu(), lines(5), options);
        one.state().write("line.weight", several.state().read("line.weight"));
        const Lines whole(4, 5, 1);
        // A batch twice over has the mean of one of them.
        std::vector<float> x = whole.x, y = whole.y;
        x.insert(x.end(), whole.x.begin(), whole.x.end());
        y.insert(y.end(), whole.y.begin(), whole.y.end());
        for (int i = 0; i < 6; ++i) {
            const StepResult mine = i % 2 ? several.step({x, y}, 0.01) : several.step(whole.batch(), 0.01);
            EXPECT_NEAR(mine.loss, one.step(whole.batch(), 0.01).loss, 1e-3) << policy << i;
            EXPECT_TRUE(mine.applied);
        }
        for (const State& state : one.state().states()) {
            if (state.type.dtype != DType::f32) continue;
            EXPECT_NEAR(several.state().read_f32(state.name)[0], one.state().read_f32(state.name)[0], 1e-3)
                << policy << state.name;
        }
    }
}

TEST(BatchShapes, TheNextBatchIsPlannedWhileAStepRuns) {
    Trainer trainer(cpu(), lines(5), {.optimizer = sgd(), .batch = 4});
    PlainLine plain(trainer);
    std::vector<Lines> batches;
    for (const std::int64_t T : {5, 40, 3, 5, 40})
        batches.emplace_back(T == 3 ? 2 : 4, T, static_cast<int>(T));
    for (std::size_t i = 0; i < batches.size(); ++i) {
        trainer.start(batches[i].batch(), rate);
        if (i + 1 < batches.size()) trainer.bring(batches[i + 1].batch());
        EXPECT_NEAR(trainer.finish().loss, plain.step(batches[i]), 2e-6) << i;
    }
    const Gradients& gradients = trainer.gradients(batches[2].batch());
    EXPECT_EQ(gradients.names().size(), 2U);
    trainer.update(rate);
    EXPECT_NEAR(trainer.state().read_f32("line.bias")[0], (plain.step(batches[2]), plain.bias), 2e-6);
}

TEST(BatchShapes, WhatFitsNoShapeIsRefused) {
    nn::Model fixed = lines(5);
    fixed.shapes_vary = false;
    Trainer trainer(cpu(), fixed, {.batch = 4});
    const Lines longer(4, 6, 1), few(3, 5, 1), whole(4, 5, 1);
    EXPECT_EQ(testing::error_of([&] { trainer.step(longer.batch(), rate); }),
              "model lines: input 'x' of a step has 4 examples of f32[5, 3], 60 numbers, got 72");
    EXPECT_EQ(testing::error_of([&] {
                  trainer.step({whole.x, few.y}, rate);
              }),
              "model lines: input 'y' of a step has 4 examples of f32[5], 20 numbers, got 15");
    EXPECT_EQ(testing::error_of([&] { Trainer(cpu(), fixed, {.batch = 4, .last_batch = -1}); }),
              "the last micro-batch has 1 example or more, got -1");
    // A weight that only some lengths have.
    nn::Model branched = lines(5);
    branched.loss = [made = branched.loss](Graph& graph, std::span<const Tensor> in, const nn::Mode& mode) {
        const Tensor loss = made(graph, in, mode);
        return in[0].dim(1) == 5 ? loss : loss + mean(nn::linear(in[0], "more", {.outputs = 1}));
    };
    Trainer some(cpu(), branched, {.batch = 4});
    EXPECT_EQ(testing::error_of([&] { some.step(longer.batch(), rate); }),
              "model lines: 'more.weight' is a weight on batches of this shape, and none on those that the "
              "trainer was made for; make it for a batch that uses all weights");
    EXPECT_TRUE(some.step(whole.batch(), rate).applied);
    // A weight whose shape follows from the length is another weight.
    nn::Model wide{.name = "wide", .inputs = {nn::numbers("x", {5})}};
    wide.shapes_vary = true;
    wide.loss = [](Tensor x) { return mean(nn::linear(x, "line", {.outputs = 1})); };
    Trainer other(cpu(), wide, {.batch = 2});
    const std::vector<float> numbers(2 * 6);
    EXPECT_EQ(testing::error_of([&] {
                  other.step({HostValues(DType::f32, std::as_bytes(std::span(numbers)), Shape{2, 6})}, rate);
              }),
              "state 'line.weight' is f32[1, 6] in this graph, but f32[1, 5] where it is kept");
}

}  // namespace
}  // namespace mantissa
