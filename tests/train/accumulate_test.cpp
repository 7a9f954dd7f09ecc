// Gradient accumulation: what several micro-batches give is what one batch of all their sequences gives.
#include "mantissa/train/accumulate.h"
#include "mantissa/graph/graph.h"
#include "mantissa/runtime/state_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/reference.h"
#include "mantissa/nn/layers.h"
#include "mantissa/train/optimizer.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/largest_difference.h"
#include "tests/train/training_states.h"

namespace mantissa {
namespace {

using testing::largest_difference;
using testing::StateBytes;
using testing::states_of;

constexpr std::int64_t sequence = 12, sequences = 6;

Gpt2Training split_training(std::int64_t batch, std::int64_t accumulate, double clip = 0.5) {
    return {.model = {.name = "small",
                      .layers = 2,
                      .heads = 2,
                      .channels = 16,
                      .vocabulary = 61,
                      .context = 12,
                      .dropout = 0},
            .batch = batch,
            .sequence = sequence,
            .accumulate = accumulate,
            .optimizer = clipped(adamw(), clip)};
}

std::vector<std::int32_t> some_ids(int from) {
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < sequence * sequences; ++i) tokens.push_back((i * i / 5 + 3 * i + from) % 61);
    return tokens;
}

std::vector<double> as_doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

/// One step from the same start; the first moments are then the gradients times 1 - beta1, clipped.
struct OneStep {
    Trainer trainer;
    StepResult result;

    OneStep(Device& device, std::int64_t batch)
        : trainer(gpt2_plan(device, split_training(batch, sequences / batch))),
          result(trainer.step({some_ids(0), some_ids(1)}, 1e-3)) {}
};

/// The step of the whole batch in FP64.
ReferenceRun exact_step(Trainer& whole, ReferenceFeed& feed) {
    for (const State& state : whole.state().states())
        feed[state.name] = state.type.dtype == DType::f32 ? as_doubles(whole.state().read_f32(state.name))
                                                          : std::vector<double>{0};
    const auto tokens = some_ids(0), targets = some_ids(1);
    feed["tokens"] = {tokens.begin(), tokens.end()};
    feed["targets"] = {targets.begin(), targets.end()};
    feed["learning_rate"] = {1e-3};
    return {whole.plan().step().graph(), feed};
}

TEST(Accumulate, MicroBatchesEqualOneBatchWithinTheErrorOfOneBatch) {
    const auto device = make_cpu_device({.threads = 2});
    Trainer start = gpt2_trainer(*device, split_training(sequences, 1));
    ReferenceFeed feed;
    const ReferenceRun exact = exact_step(start, feed);
    const ReferenceFeed after = exact.next(feed);
    OneStep whole(*device, sequences);
    for (std::int64_t batch : {1, 2, 3}) {
        OneStep parts(*device, batch);
        ASSERT_TRUE(parts.result.applied);
        // A loss is a mean of about 4: N rounded thirds or sixths of it are added up.
        EXPECT_NEAR(parts.result.loss, exact.result("loss").values[0], 8 * 0x1p-24 * 4);
        EXPECT_NEAR(parts.result.gradient_norm / exact.result("gradient_norm").values[0], 1, 1e-5);
        for (const State& state : start.state().states()) {
            if (!state.name.starts_with("adamw.m.")) continue;
            const std::vector<double>& expected = after.at(state.name);
            double largest = 0;
            for (double x : expected) largest = std::max(largest, std::abs(x));
            // The same sums in another order: the error of the whole batch is the measure, three times it
            // the class for gradients, and a rounding of the largest element where that error is by chance 0.
            const double error = largest_difference(whole.trainer.state().read_f32(state.name), expected);
            ASSERT_TRUE(std::isfinite(error)) << state.name;
            EXPECT_LE(largest_difference(parts.trainer.state().read_f32(state.name), expected),
                      3 * std::max(error, 4 * 0x1p-24 * largest) + 1e-10)
                << state.name << " of micro-batches of " << batch;
        }
    }
}

TEST(Accumulate, SameBitsOnAnyNumberOfThreads) {
    const auto trained = [](int threads) {
        const auto device = make_cpu_device({.threads = threads});
        Gpt2Training options = split_training(2, 3);
        options.model.dropout = 0.1;
        Trainer trainer = gpt2_trainer(*device, options);
        for (int i = 0; i < 3; ++i) trainer.step({some_ids(i), some_ids(i + 1)}, 1e-3);
        return states_of(trainer);
    };
    const StateBytes once = trained(1);
    EXPECT_TRUE(trained(2) == once);
    EXPECT_TRUE(trained(3) == once);
}

/// A product of one input with one weight: the gradient of a micro-batch is its input, over their number.
nn::Model one_product() {
    return {.name = "product",
            .inputs = {{"x", DType::f32, {1}}},
            .loss =
                [](Graph& graph, std::span<const Tensor> inputs, const nn::Mode&) {
                    return sum(inputs[0] * nn::parameter(graph, "w", {1}, {}), {0, 1});
                },
            .configuration = {}};
}

/// As accumulate.h draws it.
float tree_sum(std::span<const float> terms) {
    if (terms.size() == 1) return terms[0];
    const std::size_t first = std::bit_ceil(terms.size()) / 2;
    return tree_sum(terms.first(first)) + tree_sum(terms.subspan(first));
}

TEST(Accumulate, AddsUpOverATreeOfMicroBatches) {
    const auto device = make_cpu_device({.threads = 1});
    int other_than_in_order = 0;
    for (std::int64_t N = 1; N <= 17; ++N) {
        Trainer trainer(*device, one_product(),
                        {.optimizer = sgd({}), .batch = 1, .accumulate = N, .loss_scale = {}});
        std::vector<float> x, terms;
        float in_order = 0;
        for (std::int64_t i = 0; i < N; ++i) {
            x.push_back(std::sin(static_cast<float>(7 * i + N)));
            terms.push_back(x.back() * static_cast<float>(1.0 / static_cast<double>(N)));
            in_order += terms.back();
        }
        // Twice: what a step left behind changes nothing.
        for (int step = 0; step < 2; ++step) {
            const float before = trainer.state().read_f32("w")[0];
            ASSERT_TRUE(trainer.step({x}, 1.0).applied);
            EXPECT_EQ(trainer.state().read_f32("w")[0], before - tree_sum(terms)) << N << " micro-batches";
        }
        other_than_in_order += tree_sum(terms) != in_order;
    }
    EXPECT_GT(other_than_in_order, 4);
}

TEST(Accumulate, EachMicroBatchDropsOutOthers) {
    // The same micro-batch twice: with dropout its two losses differ, and so does their mean from either.
    const auto device = make_cpu_device({.threads = 1});
    std::vector<std::int32_t> tokens = some_ids(0);
    std::copy_n(tokens.begin(), tokens.size() / 2, tokens.begin() + sequence * sequences / 2);
    const auto loss = [&](double dropout, std::int64_t accumulate) {
        Gpt2Training options = split_training(3, accumulate);
        options.model.dropout = dropout;
        Trainer trainer = gpt2_trainer(*device, options);
        const std::span<const std::int32_t> given(tokens.data(),
                                                  static_cast<std::size_t>(trainer.plan().units_per_step()));
        return trainer.step({given, given}, 1e-3).loss;
    };
    EXPECT_EQ(loss(0, 1), loss(0, 2));  // halves are exact
    EXPECT_NE(loss(0.2, 1), loss(0.2, 2));
}

TEST(Accumulate, GradientsAreKeptOnlyWhereTheyAreAddedUp) {
    const auto device = make_cpu_device({.threads = 1});
    Trainer single = gpt2_trainer(*device, split_training(sequences, 1)),
            several = gpt2_trainer(*device, split_training(2, 3));
    const auto gradients = [](const Trainer& trainer) {
        std::int64_t bytes = 0;
        for (const State& state : trainer.plan().step().graph().states())
            if (state.kind == State::Kind::gradient) bytes += state.type.bytes();
        return bytes;
    };
    EXPECT_EQ(gradients(single), 0);
    EXPECT_TRUE(single.plan().accumulate().empty());
    const std::int64_t parameters = several.plan().facts().parameters;
    EXPECT_EQ(gradients(several), 2 * 4 * (parameters + 1));  // two levels; and the loss
    ASSERT_EQ(several.plan().accumulate().size(), 2u);
    // Adding up copies nothing: sums are written straight into the states.
    for (const auto& before : several.plan().accumulate())
        EXPECT_TRUE(before->memory().copied_updates.empty());
    EXPECT_GE(several.plan().memory().state, 5 * 4 * parameters);
    for (const auto& before : several.plan().accumulate())
        EXPECT_GE(several.plan().memory().arena, before->memory().arena_bytes);
    EXPECT_GE(several.plan().memory().arena, several.plan().step().memory().arena_bytes);
}

TEST(Accumulate, AnyBadMicroBatchSkipsTheStepAndNothingOfItStays) {
    const auto device = make_cpu_device({.threads = 1});
    for (std::size_t bad : {0u, 1u, 2u}) {
        Trainer trainer = gpt2_trainer(*device, split_training(2, 3)),
                healthy = gpt2_trainer(*device, split_training(2, 3));
        // The channels of token 60 add up to more than FP32 holds, so a micro-batch that reads it has no
        // finite loss. The others only give it a probability: their scores for it stay finite, for the
        // normalised activations that it is multiplied with add up to about 0.
        std::vector<float> table = trainer.state().read_f32("wte.weight");
        std::fill(table.end() - 16, table.end(), 3e37f);
        for (Trainer* each : {&trainer, &healthy})
            each->state().write("wte.weight", std::as_bytes(std::span<const float>(table)));
        std::vector<std::int32_t> tokens = some_ids(0);
        std::replace(tokens.begin(), tokens.end(), 60, 7);
        const std::vector<std::int32_t> targets(tokens.size(), 5);
        const StateBytes before = states_of(trainer);
        std::vector<std::int32_t> poisoned = tokens;
        poisoned[bad * 2 * sequence + 4] = 60;
        const StepResult result = trainer.step({poisoned, targets}, 1e-3);
        EXPECT_FALSE(result.applied);
        EXPECT_FALSE(std::isfinite(result.loss));
        EXPECT_TRUE(states_of(trainer) == before);
        EXPECT_TRUE(trainer.step({tokens, targets}, 1e-3).applied);
        EXPECT_TRUE(healthy.step({tokens, targets}, 1e-3).applied);
        EXPECT_TRUE(states_of(trainer) == states_of(healthy)) << "micro-batch " << bad;
    }
}

}  // namespace
}  // namespace mantissa
