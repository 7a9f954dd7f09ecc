// Two ways of running one training step, compared over a few steps from the same weights.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "mantissa/train/trainer.h"

namespace mantissa {

/// Tokens and targets of one step of a model with at least 509 tokens, i32 [count].
struct SomeTokens {
    explicit SomeTokens(std::size_t count) : tokens(count), targets(count) {
        for (std::size_t i = 0; i < count; ++i) {
            tokens[i] = static_cast<std::int32_t>(i * 37 % 509);
            targets[i] = static_cast<std::int32_t>(i * 53 % 499);
        }
    }
    std::vector<std::int32_t> tokens, targets;
};

/// FP32 sums in another order differ in their last bits, and AdamW's first steps divide gradients by their
/// own magnitude. So a step moves weights by the rate times a gradient's relative difference. Seen: 1e-6; a
/// wrong kernel shows in the first digits.
inline void expect_trains_alike(Trainer& one, Trainer& other, const SomeTokens& batch, int steps) {
    for (int step = 0; step < steps; ++step) {
        const StepResult a = one.step({batch.tokens, batch.targets}, 1e-3);
        const StepResult b = other.step({batch.tokens, batch.targets}, 1e-3);
        EXPECT_NEAR(a.loss, b.loss, 2e-5) << "step " << step;
        EXPECT_NEAR(a.gradient_norm, b.gradient_norm, 1e-4 * static_cast<double>(b.gradient_norm));
    }
}

}  // namespace mantissa
