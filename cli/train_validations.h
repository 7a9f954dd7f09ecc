// Failed steps of a run, as with gradients that underflow, and its validations: the lowest loss and its data,
// losses that are not finite, and the checkpoint of --keep-best.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/train_log.h"
#include "cli/train_options.h"
#include "cli/train_ranks.h"
#include "mantissa/passes/policy.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_checkpoint.h"

namespace mantissa::cli {

class TrainHealth {
  public:
    TrainHealth(const TrainOptions& options, TrainRanks& ranks) : options_(options), ranks_(ranks) {}

    /// Warns, before the first step of a policy that needs a loss scale, of gradients that become zero where
    /// no dynamic scale adapts.
    void look_for_underflow(Trainer& trainer, const Batch& batch) const;
    /// Records a step. For a bad step, finds the first number that was not finite.
    void add(StepRecord& record, Trainer& trainer, const Batch& batch);
    bool gave_up() const { return options_.bad_steps > 0 && in_a_row_ >= options_.bad_steps; }
    /// A line for the end of the run, or nothing.
    std::string summary() const;
    /// Why the run was given up.
    std::string failure() const;

  private:
    std::string advice_for(const StepRecord& record, const TrainerOptions& settings) const;

    const TrainOptions& options_;
    TrainRanks& ranks_;
    std::int64_t steps_ = 0, bad_ = 0, in_a_row_ = 0;
    bool begins_broken_ = false;       ///< the first step met a state that is not finite
    std::string non_finite_, advice_;  ///< of the last bad step
};

class TrainValidations {
  public:
    /// `judged` is equal for validations on equal data (TrainInput::judged).
    TrainValidations(const TrainOptions& options, const Policy& policy, std::string judged);

    const std::string& judged() const { return progress_.judged; }

    /// Continues a checkpoint's validations. Returns a warning if these were on other data, so that the
    /// lowest loss starts anew; else nothing.
    std::string go_on_from(const ValidationProgress& saved);
    /// To be called before the first save. Returns a line if another run's best checkpoint would be replaced,
    /// or stay beside this one's; else empty.
    std::string say_what_is_kept();

    /// Records a validation after `steps` steps. Returns whether its loss is the lowest so far.
    bool add(const Validation& result, std::int64_t steps);
    /// Cause and remedy, if the last added loss is the first that is not finite; else empty.
    std::string take_remark();
    bool ran_out_of_patience() const;

    /// After a best checkpoint was saved: whether the previous one is this run's, and is to be removed.
    bool replaced_own_best();

    /// For a checkpoint; none if it has no effect.
    std::optional<ValidationProgress> progress() const;
    /// Lines for the end of the run.
    std::string summary() const;
    /// Why the run failed; empty: it succeeded.
    std::string failure() const;

  private:
    std::string best_text() const;

    const TrainOptions& options_;
    std::string policy_;
    ValidationProgress progress_;
    bool owns_best_ = false, began_anew_ = false;
    std::int64_t validations_ = 0, not_finite_ = 0;
    std::string first_not_finite_, remark_;
};

}  // namespace mantissa::cli
