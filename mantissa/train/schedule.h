// The learning rate of each step: a linear warm-up, then a cosine down to the least.
#pragma once

#include <cstdint>
#include <string>

namespace mantissa::inline v0 {

struct LearningRateSchedule {
    double peak = 1e-3;
    double least = 1e-3;      ///< at the last step; equal to `peak`: constant after the warm-up
    std::int64_t warmup = 0;  ///< steps: the first has peak / warmup, the last of them peak
    std::int64_t steps = 1;   ///< of the whole training

    /// The rate of step 0, 1, ...; `least` beyond the last. As in GPT-2's and nanoGPT's recipes.
    double at(std::int64_t step) const;
    /// The schedule in words; two that are equal at every step have one text.
    std::string text() const;
};

/// Throws UserError unless the rate is 0 or more and a finite number in FP32, which updates are computed in.
void require_learning_rate(double rate);

/// Throws UserError unless that holds for `peak`, 0 <= least <= peak and 0 <= warmup.
void validate(const LearningRateSchedule& schedule);

}  // namespace mantissa
