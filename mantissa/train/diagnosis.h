// The fault of a step, and what 16 bits lost of it: the step run again to look at its numbers. Nothing here
// changes a state.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "mantissa/runtime/non_finite.h"
#include "mantissa/train/step_execution.h"

namespace mantissa::inline v0 {

/// A step that was not applied, as it ran.
struct BadStep {
    std::int64_t step = 0;
    double learning_rate = 0;
    float loss_scale = 1;  ///< that it ran with, before it was lowered
};

/// Whether the loss scale is at fault where the step was not applied: the loss was finite, so the forward
/// pass was, and the gradients were multiplied by more than 1.
bool is_fault_of_loss_scale(float loss, double loss_scale);

/// Whether a training does what it is for, seen by its losses alone: the mean of the last ones is at most
/// twice the first.
class LossWatch {
  public:
    /// Takes a loss down; one that is no number is left out. Returns words, once, where the mean of the last
    /// ten is more than twice the first.
    std::string add(double loss);

  private:
    static constexpr std::size_t together = 10;
    std::array<double, together> last_ = {};
    double first_ = 0;
    std::size_t losses_ = 0;
    bool has_climbed_ = false;
};

/// The first number of the step that was not finite; none if there is none.
std::optional<NonFinite> first_non_finite(StepExecution& execution, const Batch& batch, const BadStep& bad);

/// How much of the gradients is lost at the loss scale of the moment: seen in the same step at a greater one.
Underflow underflow(StepExecution& execution, const Batch& batch, std::int64_t step);

}  // namespace mantissa
