// A very small GPT-2 that is trained with copies of its parameters in another order, on tokens of a formula.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/train/loss_scale.h"
#include "mantissa/train/optimizer.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/passes.h"

namespace mantissa::testing {

inline Gpt2Training laid_out_training(const std::string& policy, std::int64_t accumulate,
                                      const Optimizer& optimizer, bool lay_out = true) {
    Gpt2Training training{
        .model = {.name = "small", .layers = 2, .heads = 2, .channels = 16, .vocabulary = 64, .context = 16},
        .batch = 2,
        .sequence = 16,
        .accumulate = accumulate,
        .optimizer = clipped(optimizer, 1.0)};
    training.policy = find_policy(policy);
    training.passes = plain_and({{"lay_out", lay_out}});
    training.loss_scale = default_loss_scale(training.policy);
    return training;
}

/// Inputs of a step: other tokens for another `shift`.
struct ShiftedTokens {
    std::vector<std::int32_t> tokens, targets;

    ShiftedTokens(const Trainer& trainer, int shift) {
        for (std::int64_t i = 0; i < trainer.plan().units_per_step(); ++i) {
            tokens.push_back(static_cast<std::int32_t>((i * i / 3 + i + shift) % 64));
            targets.push_back(static_cast<std::int32_t>((i * 5 + shift) % 64));
        }
    }
};

inline StepResult step(Trainer& trainer, int shift = 0) {
    const ShiftedTokens given(trainer, shift);
    return trainer.step({given.tokens, given.targets}, 1e-2);
}

}  // namespace mantissa::testing
