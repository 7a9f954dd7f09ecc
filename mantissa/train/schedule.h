// Checks of learning rates.
#pragma once

#include "mantissa/train/optimizer.h"

namespace mantissa::inline v0 {

/// Throws UsageError unless the rate is 0 or more and a finite number in FP32, which updates are computed in.
void require_learning_rate(double rate);

/// Throws UserError unless the same holds for the rate of one step. A NaN there would reach every parameter,
/// and no test of the gradients sees it.
void require_step_rate(double rate);

/// Throws UsageError unless that holds for `peak`, 0 <= least <= peak and 0 <= warmup.
void validate(const LearningRateSchedule& schedule);

}  // namespace mantissa
