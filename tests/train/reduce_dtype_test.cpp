// Gradients that travel in BF16: what is rounded, what is not, and which bits are still the same.
#include <gtest/gtest.h>

#include <cmath>

#include "mantissa/graph/graph.h"
#include "mantissa/nn/layers.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/optimizer.h"
#include "tests/train/rank_training.h"

namespace mantissa {
namespace {

using testing::run_good_ranks;
using testing::Split;
using testing::train;
using testing::Trained;

/// A loss whose gradients are its inputs: x, which is cut among ranks, and y, which is not.
nn::Model sums_of_products() {
    return {.name = "products",
            .inputs = {{"x", DType::f32, {64, 64}}, {"y", DType::f32, {5}}},
            .loss =
                [](Graph& graph, std::span<const Tensor> inputs, const nn::Mode&) {
                    return sum(inputs[0] * nn::parameter(graph, "w", {64, 64}, {}), {0, 1, 2}) +
                           sum(inputs[1] * nn::parameter(graph, "v", {5}, {}), {0, 1});
                },
            .configuration = {}};
}

/// The gradient of a rank: numbers of which hardly any is one of BF16.
std::vector<float> gradient_of(int rank, std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
        values[i] = std::sin(static_cast<float>(i) * 0.3f + static_cast<float>(rank)) * 0.1f;
    return values;
}

TEST(RanksTrainInBF16, RoundEveryRanksGradientsOnceAndNothingElse) {
    run_good_ranks(2, [](Ranks& ranks) {
        const auto device = make_cpu_device({.threads = 1, .ranks = &ranks});
        TrainerOptions options{.optimizer = sgd({}), .batch = 1, .ranks = &ranks};
        options.wire = Wire::bf16;
        Trainer trainer(*device, sums_of_products(), options);
        const std::vector<float> x = gradient_of(ranks.rank(), 4096), y = gradient_of(ranks.rank() + 7, 5);
        trainer.state().write("w", std::as_bytes(std::span<const float>(std::vector<float>(4096, 1.0f))));
        const StepResult result = trainer.step({x, y}, 1);
        double loss = 0;
        for (int rank = 0; rank < 2; ++rank)
            for (const float each : gradient_of(rank, 4096)) loss += static_cast<double>(each) / 2;
        // FP32's: a rounded loss would be off by 2^-9 of it or more, were it not one of BF16 by chance.
        EXPECT_NEAR(static_cast<double>(result.loss), loss, 0x1p-14 * std::abs(loss));
        double worst = 0;
        for (const auto& [name, count, first] : {std::tuple{"w", 4096u, 0}, {"v", 5u, 7}}) {
            const std::vector<float> stepped = trainer.state().read_f32(name);
            const float begun = first == 0 ? 1.0f : 0.0f;
            const std::vector<float> a = gradient_of(first, count), b = gradient_of(first + 1, count);
            for (std::size_t i = 0; i < count; ++i) {
                const double half_a = static_cast<double>(a[i]) / 2, half_b = static_cast<double>(b[i]) / 2;
                const double error = std::abs(static_cast<double>(begun - stepped[i]) - (half_a + half_b));
                // Half a last place of 8 bits, of each; and of the FP32 parameter near 1.
                EXPECT_LE(error, 0x1p-8 * (std::abs(half_a) + std::abs(half_b)) + 0x1p-23) << name << i;
                worst = std::max(worst, error / (std::abs(half_a) + std::abs(half_b) + 0x1p-12));
            }
        }
        EXPECT_GT(worst, 0x1p-9) << "they are rounded";
    });
}

TEST(RanksTrainInBF16, ToTheSameBitsWhoeverHoldsTheStatesAndWhateverTheBuckets) {
    for (const std::string policy : {"fp32", "bf16"}) {
        const Split split{.ranks = 2, .policy = policy, .steps = 2, .wire = Wire::bf16};
        const Trained trained = train(split);
        Split other = split;
        other.states = States::whole;
        EXPECT_TRUE(train(other) == trained) << policy;
        other = split;
        other.bucket_bytes = 1 << 20;
        EXPECT_TRUE(train(other) == trained) << policy;
    }
    const Split split{.ranks = 2, .steps = 2, .optimizer = muon(), .wire = Wire::bf16};
    Split other = split;
    other.states = States::whole;
    EXPECT_TRUE(train(other) == train(split));
}

TEST(RanksTrainInBF16, OtherSplitsOfAStepRoundOtherSums) {
    const Trained exact = train({.accumulate = 4, .steps = 2});
    const Trained four = train({.ranks = 4, .steps = 2, .wire = Wire::bf16}),
                  two = train({.ranks = 2, .accumulate = 2, .steps = 2, .wire = Wire::bf16});
    EXPECT_EQ(four.losses[0], exact.losses[0]) << "the loss travels as it is";
    EXPECT_EQ(two.losses[0], exact.losses[0]);
    EXPECT_FALSE(four.states == exact.states);
    EXPECT_FALSE(two.states == exact.states);
    EXPECT_FALSE(two.states == four.states);
}

}  // namespace
}  // namespace mantissa
