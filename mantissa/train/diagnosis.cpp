#include "mantissa/train/diagnosis.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "mantissa/runtime/execution.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

bool is_fault_of_loss_scale(float loss, double loss_scale) { return std::isfinite(loss) && loss_scale > 1; }

std::string LossWatch::add(double loss) {
    if (!std::isfinite(loss)) return "";
    if (losses_ == 0) first_ = loss;
    last_[losses_++ % together] = loss;
    const double mean = std::accumulate(last_.begin(), last_.end(), 0.0) / together;
    if (has_climbed_ || losses_ < together || !(first_ > 0) || mean <= 2 * first_) return "";
    has_climbed_ = true;
    return fmt::format(
        "the mean of the last ten losses is {:.4g}, {:.1f} times the first, {:.4g}: this does not train",
        mean, mean / first_, first_);
}

std::optional<NonFinite> first_non_finite(StepExecution& execution, const Batch& batch, const BadStep& bad) {
    const auto lowered = static_cast<float>(execution.loss_scale().scale);
    execution.write_loss_scale(bad.loss_scale);
    std::optional<NonFinite> found;
    const TrainerOptions& options = execution.plan().options();
    for (std::int64_t index = 0; index < options.accumulate && !found; ++index) {
        // One rank alone may find nothing; it must not make the update that the failed step did not make.
        const bool updates = index + 1 == options.accumulate && options.ranks;
        found = run_to_first_non_finite(
            execution.prepare(batch, {.step = bad.step, .index = index, .learning_rate = bad.learning_rate}),
            updates ? Stage::backward : Stage::update);
    }
    execution.write_loss_scale(lowered);
    execution.clear_gradients();
    return found;
}

Underflow underflow(StepExecution& execution, const Batch& batch, std::int64_t step) {
    const TrainerOptions& options = execution.plan().options();
    const MicroBatch last{.step = step, .index = options.accumulate - 1};
    execution.clear_gradients();
    RoundedGradients above;
    if (options.loss_scale.kind == LossScaleOptions::Kind::dynamic) {
        const auto scale = static_cast<float>(execution.loss_scale().scale);
        execution.write_loss_scale(scale * static_cast<float>(TrainingPlan::far_above));
        above = rounded_gradients(execution.prepare(batch, last));
        execution.write_loss_scale(scale);
    } else {
        Execution scaled_up = execution.prepare_scaled_up(batch, last);
        above = rounded_gradients(scaled_up);
    }
    return underflow_between(rounded_gradients(execution.prepare(batch, last)), above);
}

}  // namespace mantissa
