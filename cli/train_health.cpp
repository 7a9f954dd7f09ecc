#include "cli/train_health.h"

#include <fmt/format.h>

#include "cli/print_error.h"
#include "mantissa/runtime/non_finite.h"
#include "mantissa/runtime/underflow.h"
#include "mantissa/train/diagnosis.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::cli {

namespace {

/// A step that the dynamic loss scale skips on its way to the right scale is no bad step; one at its floor
/// is.
bool is_bad(const StepRecord& record, const LossScaleOptions& scaling) {
    return !record.result.applied &&
           (scaling.kind != LossScaleOptions::Kind::dynamic || record.loss_scale.scale <= scaling.floor);
}

}  // namespace

void TrainHealth::look_for_underflow(Trainer& trainer, const Batch& batch) const {
    const TrainerOptions& settings = trainer.plan().options();
    if (!settings.policy.needs_loss_scale() || settings.loss_scale.kind == LossScaleOptions::Kind::dynamic)
        return;
    if (const Underflow underflow = trainer.underflow(batch); underflow.share() >= 0.001)
        warn(
            "at loss scale {:g}, {:.1f} % of the gradients' elements become zero when they are cast to f16; "
            "--loss-scale dynamic, or a larger number, keeps them",
            trainer.loss_scale().scale, 100 * underflow.share());
}

void TrainHealth::add(StepRecord& record, Trainer& trainer, const Batch& batch) {
    const TrainerOptions& settings = trainer.plan().options();
    const bool is_first = steps_++ == 0;
    if (!is_bad(record, settings.loss_scale)) {
        in_a_row_ = 0;
        return;
    }
    ++in_a_row_;
    ++bad_;
    const auto found = trainer.first_non_finite(batch, record.learning_rate);
    if (is_first) begins_broken_ = found && found->source == NonFinite::Source::state;
    non_finite_ = ranks_.first_of(found ? found->text() : "");
    if (non_finite_.empty()) non_finite_ = "nothing was found when it was run again";
    record.non_finite = non_finite_;
    advice_ = advice_for(record, settings);
}

std::string TrainHealth::advice_for(const StepRecord& record, const TrainerOptions& settings) const {
    if (const std::string& files = options_.resume.empty() ? options_.run.from : options_.resume;
        begins_broken_ && !files.empty())
        return fmt::format("it was so in {}, which is damaged or of a training that broke down", files);
    if (is_fault_of_loss_scale(record.result.loss, record.loss_scale.scale))
        return fmt::format("the loss is finite, and times the loss scale of {:g} the gradients are not: {}",
                           record.loss_scale.scale,
                           settings.loss_scale.kind == LossScaleOptions::Kind::fixed
                               ? "a smaller --loss-scale, or --loss-scale dynamic, may help"
                               : "a smaller --loss-scale-floor may help");
    return fmt::format(
        "a lower --learning-rate or a {} may help{}",
        options_.clip.value_or(0) > 0 ? "smaller --clip" : "--clip",
        settings.policy.needs_loss_scale() ? ", and so may --policy bf16, which has the range of FP32" : "");
}

std::string TrainHealth::summary() const {
    if (bad_ == 0 || gave_up()) return "";
    return fmt::format("{} of them not finite, and skipped; in the last, {}\n", bad_, non_finite_);
}

std::string TrainHealth::failure() const {
    return fmt::format(
        "stopped after {} not finite, with the parameters as before them; in the last, {}; {}",
        in_a_row_ == 1 ? "a step that was" : fmt::format("{} steps in a row that were", in_a_row_),
        non_finite_, advice_);
}

}  // namespace mantissa::cli
