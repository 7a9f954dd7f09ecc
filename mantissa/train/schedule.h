// Checks of learning rates.
#pragma once

#include "mantissa/train/optimizer.h"

namespace mantissa::inline v0 {

/// Throws UsageError unless the rate is at least 0 and finite in FP32, the precision of updates.
void require_learning_rate(double rate);

/// Throws UserError unless the rate of one step is at least 0 and finite in FP32. A NaN would reach every
/// parameter, and no test of the gradients would see it.
void require_step_rate(double rate);

/// Throws UsageError unless `peak` is such a rate, 0 <= least <= peak and 0 <= warmup.
void validate(const LearningRateSchedule& schedule);

}  // namespace mantissa
