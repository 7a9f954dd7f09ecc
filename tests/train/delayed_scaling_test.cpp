// Delayed scaling: histories of largest magnitudes take every micro-batch of a good step once, in order, and
// nothing else. A policy below sixteen bits has something to round.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/nn/layers.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/optimizer.h"
#include "mantissa/train/trainer.h"
#include "tests/support/error_of.h"
#include "tests/train/laid_out_training.h"

namespace mantissa {
namespace {

using testing::step;

Trainer delayed(Device& device, std::int64_t accumulate) {
    return gpt2_trainer(device, testing::laid_out_training("fp8-delayed", accumulate, adamw()));
}

/// The newest number last.
std::vector<float> history(const Trainer& trainer, const std::string& of) {
    return trainer.state().read_f32("amax." + of + ".h.1.mlp.c_fc.weight");
}

std::vector<float> newest(const Trainer& trainer, const std::string& of, std::ptrdiff_t count) {
    const std::vector<float> all = history(trainer, of);
    return {all.end() - count, all.end()};
}

TEST(DelayedScaling, HistoriesTakeEachMicroBatchOnce) {
    const auto device = make_cpu_device({.threads = 2});
    for (const std::int64_t accumulate : {1, 3}) {
        Trainer trainer = delayed(*device, accumulate);
        for (const char* const of : {"x", "dy"}) EXPECT_EQ(history(trainer, of).size(), 1024u);
        std::vector<float> before = history(trainer, "x");
        EXPECT_EQ(std::ranges::count(before, 0.0f), 1024);
        for (int i = 0; i < 3; ++i) {
            ASSERT_TRUE(step(trainer, i).applied);
            const std::vector<float> after = history(trainer, "x");
            // The numbers moved, and as many came as there were micro-batches.
            EXPECT_TRUE(std::equal(before.begin() + accumulate, before.end(), after.begin()));
            EXPECT_EQ(std::ranges::count(after, 0.0f), 1024 - accumulate * (i + 1));
            before = after;
        }
    }
}

/// The micro-batches of a first step, which none of them has scales for, are the steps of another training
/// that does not learn.
TEST(DelayedScaling, MicroBatchesAreInTheirOrder) {
    const auto device = make_cpu_device({.threads = 2});
    Trainer accumulated = delayed(*device, 3);
    step(accumulated);
    std::vector<float> single;
    for (int part = 0; part < 3; ++part) {
        Trainer alone = delayed(*device, 1);
        const testing::ShiftedTokens all(accumulated, 0);
        const auto size = static_cast<std::ptrdiff_t>(alone.plan().units_per_step());
        const std::vector<std::int32_t> tokens(all.tokens.begin() + part * size,
                                               all.tokens.begin() + (part + 1) * size),
            targets(all.targets.begin() + part * size, all.targets.begin() + (part + 1) * size);
        alone.step({tokens, targets}, 1e-2);
        single.push_back(newest(alone, "x", 1)[0]);
    }
    EXPECT_EQ(newest(accumulated, "x", 3), single);
}

TEST(DelayedScaling, EvaluationAndABadStepLeaveNoTrace) {
    const auto device = make_cpu_device({.threads = 2});
    for (const std::int64_t accumulate : {1, 3}) {
        Trainer trainer = delayed(*device, accumulate), undisturbed = delayed(*device, accumulate);
        step(trainer);
        step(undisturbed);
        const testing::ShiftedTokens other(trainer, 7);
        const std::vector<float> before = history(trainer, "x");
        trainer.evaluate({std::span(other.tokens).first(32), std::span(other.targets).first(32)});
        EXPECT_EQ(history(trainer, "x"), before);
        std::vector<float> weight = trainer.state().read_f32("h.0.mlp.c_fc.weight");
        const float good = weight[5];
        const auto write = [&](float number) {
            weight[5] = number;
            trainer.state().write("h.0.mlp.c_fc.weight", std::as_bytes(std::span<const float>(weight)));
        };
        write(std::numeric_limits<float>::infinity());
        EXPECT_FALSE(step(trainer, 1).applied);
        EXPECT_EQ(history(trainer, "x"), before);
        write(good);
        for (int i = 2; i < 4; ++i) EXPECT_EQ(step(trainer, i).loss, step(undisturbed, i).loss);
        for (const char* const of : {"x", "dy"}) EXPECT_EQ(history(trainer, of), history(undisturbed, of));
    }
}

TEST(BelowSixteenBits, AModelInWhichNothingIsRoundedIsRefused) {
    const auto device = make_cpu_device({.threads = 1});
    const nn::Model model{.name = "one layer", .inputs = {nn::numbers("x", {4})}, .loss = [](Tensor x) {
                              return sum(nn::linear(x, "fc", {.outputs = 3}), {0, 1});
                          }};
    EXPECT_EQ(
        testing::error_of([&] { Trainer(*device, model, {.batch = 2, .policy = "mxfp8"}); }),
        "policy mxfp8 rounds nothing in one layer: the last layer, the head, stays in bf16; train it under "
        "bf16");
}

}  // namespace
}  // namespace mantissa
