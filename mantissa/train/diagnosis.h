// What went wrong in a step, and what 16 bits lost of it: the step run again to look at its numbers. Nothing
// here changes a state.
#pragma once

#include <optional>

#include "mantissa/runtime/non_finite.h"
#include "mantissa/runtime/underflow.h"
#include "mantissa/train/step_execution.h"

namespace mantissa::inline v0 {

/// A step that was not applied, as it ran.
struct BadStep {
    std::int64_t step = 0;
    double learning_rate = 0;
    float loss_scale = 1;  ///< that it ran with, before it was lowered
};

/// The first number of the step that was not finite; none if there is none.
std::optional<NonFinite> first_non_finite(StepExecution& execution, const Batch& batch, const BadStep& bad);

/// How much of the gradients is lost at the loss scale of the moment: seen in the same step at a greater one.
Underflow underflow(StepExecution& execution, const Batch& batch, std::int64_t step);

}  // namespace mantissa
