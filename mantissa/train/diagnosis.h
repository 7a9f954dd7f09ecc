// The fault of a step, and the part of its gradients that 16 bits lose: the step runs again, and its numbers
// are inspected. No state changes.
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
    float loss_scale = 1;  ///< of that run, before it was lowered
};

/// Whether the loss scale made the step fail: the loss, and so the forward pass, was finite, and the
/// gradients were multiplied by more than 1.
bool is_fault_of_loss_scale(float loss, double loss_scale);

/// Watches the losses of a training: it goes well while the mean of the last ten is at most twice the first.
class LossWatch {
  public:
    /// Records a loss; a loss that is not a number is skipped. Returns a warning, once, when the mean of the
    /// last ten is more than twice the first.
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

/// The share of the gradients that the present loss scale loses, measured in the same step at a larger scale.
Underflow underflow(StepExecution& execution, const Batch& batch, std::int64_t step);

}  // namespace mantissa
