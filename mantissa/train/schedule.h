// The learning rate of each step: a linear warm-up, then a cosine down to the least.
#pragma once

#include <cstdint>
#include <string>

namespace mantissa::inline v0 {

struct LearningRateSchedule {
    double peak = 1e-3;
    double least = 1e-3;      ///< where the cosine ends; equal to `peak`: constant after the warm-up
    std::int64_t warmup = 0;  ///< steps: the first has peak / warmup, the last of them peak
    std::int64_t steps = 1;   ///< of the whole training

    /// The rate of step 0, 1, ... Half a cosine's period is `steps` - `warmup` steps long, so that `least` is
    /// the rate of step `steps`, the first that is not made, and of all beyond: nanoGPT's and llm.c's
    /// formula, and that of PyTorch's CosineAnnealingLR with T_max = `steps` where there is no warm-up.
    double at(std::int64_t step) const;
    /// The schedule in words; two that are equal at every step have one text.
    std::string text() const;
};

/// Throws UserError unless the rate is 0 or more and a finite number in FP32, which updates are computed in.
void require_learning_rate(double rate);

/// Throws UserError unless that holds for `peak`, 0 <= least <= peak and 0 <= warmup.
void validate(const LearningRateSchedule& schedule);

}  // namespace mantissa
