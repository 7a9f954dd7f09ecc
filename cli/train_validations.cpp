#include "cli/train_validations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <utility>

#include "cli/print_error.h"
#include "mantissa/base/atomic_file.h"
#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/runtime/non_finite.h"
#include "mantissa/train/diagnosis.h"
#include "mantissa/train/perplexity.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::cli {

namespace {

/// A step that a dynamic loss scale skips while it falls is not bad; a skipped step at its floor is.
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

namespace {

/// Options that change the validation data, for checkpoints that do not record it.
constexpr std::array of_what_is_judged = {"--validation", "--validate-batches",
                                          "--held-out",   "--text",
                                          "--tokens",     "--tokenizer",
                                          "--documents",  "--sequence",
                                          "--images",     "--image-size",
                                          "--resize",     "--mean",
                                          "--std",        "--chats",
                                          "--loss-on"};

/// Whether the best checkpoint in `place` is the one that a run remembers.
bool is_remembered(const std::filesystem::path& place, const ValidationProgress& progress) {
    try {
        const ValidationProgress there = saved_validations(place);
        return progress.best_loss && there.best_loss == progress.best_loss &&
               there.best_steps == progress.best_steps;
    } catch (const UserError&) {
        return false;
    }
}

}  // namespace

TrainValidations::TrainValidations(const TrainOptions& options, const Policy& policy, std::string judged)
    : options_(options), policy_(policy.name) {
    progress_.judged = std::move(judged);
}

std::string TrainValidations::go_on_from(const ValidationProgress& saved) {
    const bool is_known = !saved.judged.empty();
    const bool is_same = is_known ? saved.judged == progress_.judged
                                  : std::ranges::none_of(of_what_is_judged, [&](const char* option) {
                                        return options_.given.contains(option);
                                    });
    if (is_same || progress_.judged.empty()) {
        progress_ = {saved.best_loss, saved.best_steps, saved.since,
                     progress_.judged.empty() ? saved.judged : progress_.judged};
        return "";
    }
    began_anew_ = saved.best_loss.has_value();
    if (!began_anew_) return "";
    return fmt::format(
        "the lowest validation loss of {}, {:.6f} after step {}, {}: the lowest is looked for anew",
        options_.resume, *saved.best_loss, saved.best_steps - 1,
        is_known ? "is of other data than this run validates on"
                 : "does not say which data it is of, and data are given anew");
}

std::string TrainValidations::say_what_is_kept() {
    if (options_.checkpoint.empty()) return "";
    const std::filesystem::path place = place_of_best(options_.checkpoint);
    const std::filesystem::path previous = AtomicDirectory::previous_of(place);
    std::error_code ignored;
    const bool is_there = std::filesystem::exists(place / "state.json", ignored);
    if (!options_.keep_best)
        return is_there && options_.resume.empty()
                   ? fmt::format(
                         "{} is the best checkpoint of another run, and stays: without --keep-best this "
                         "one keeps none",
                         place.string())
                   : "";
    owns_best_ = is_there ? is_remembered(place, progress_) : !std::filesystem::exists(previous, ignored);
    if (!is_there || owns_best_) return "";
    return fmt::format(
        "{} holds a checkpoint of another {}; the first save moves it to {}, the second replaces "
        "it there",
        place.string(), began_anew_ ? "validation" : "run", previous.string());
}

bool TrainValidations::add(const Validation& result, std::int64_t steps) {
    ++validations_;
    ++progress_.since;
    if (!std::isfinite(result.loss)) {
        if (not_finite_++ == 0)
            remark_ = first_not_finite_ =
                fmt::format("step {}: the validation loss is {:f} under {}, {}: {}", steps - 1, result.loss,
                            policy_, result.not_finite, why_not_finite(policy_));
        return false;
    }
    if (progress_.best_loss && result.loss >= *progress_.best_loss) return false;
    progress_ = {result.loss, steps, 0, progress_.judged};
    return true;
}

std::string TrainValidations::take_remark() { return std::exchange(remark_, ""); }

bool TrainValidations::ran_out_of_patience() const {
    return options_.patience > 0 && progress_.since >= options_.patience;
}

bool TrainValidations::replaced_own_best() { return std::exchange(owns_best_, true); }

std::optional<ValidationProgress> TrainValidations::progress() const {
    if (!options_.keep_best && options_.patience == 0) return std::nullopt;
    return progress_;
}

std::string TrainValidations::best_text() const {
    return fmt::format("{:.6f} after step {}", *progress_.best_loss, progress_.best_steps - 1);
}

std::string TrainValidations::summary() const {
    std::string text;
    if (ran_out_of_patience())
        text += fmt::format("stopped early: {} in a row {} (--patience {})\n",
                            count_text(progress_.since, "validation"),
                            progress_.best_loss ? fmt::format("brought no lower loss than {}", best_text())
                                                : "had no loss that is a number",
                            options_.patience);
    if (options_.keep_best && progress_.best_loss)
        text += fmt::format("the best checkpoint, with the validation loss {}, is {}\n", best_text(),
                            place_of_best(options_.checkpoint));
    return text;
}

std::string TrainValidations::failure() const {
    if (not_finite_ == 0) return "";
    return fmt::format("{} of {} had no loss that is a number{}; {}", not_finite_,
                       count_text(validations_, "validation"),
                       options_.keep_best ? ", and --keep-best kept none of them" : "", first_not_finite_);
}

}  // namespace mantissa::cli
