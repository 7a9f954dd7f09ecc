// Steps of a run that went wrong, as gradients that underflow, and its validations: the lowest loss and the
// data that it is of, losses that are no numbers, and the checkpoint that --keep-best keeps.
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

    /// Before the first step of a policy that needs a loss scale: warns of gradients that become zero where
    /// nothing adapts it.
    void look_for_underflow(Trainer& trainer, const Batch& batch) const;
    /// Takes a step down. Of a bad one it looks for the first number that was not finite, for the record.
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
    bool begins_broken_ = false;       ///< the first step came upon a state that is not finite
    std::string non_finite_, advice_;  ///< of the last bad step
};

class TrainValidations {
  public:
    /// `judged` is equal where two validations are of the same data (TrainInput::judged).
    TrainValidations(const TrainOptions& options, const Policy& policy, std::string judged);

    const std::string& judged() const { return progress_.judged; }

    /// Goes on after those of a checkpoint. Returns a warning, or nothing: they were of other data, so the
    /// lowest loss begins anew.
    std::string go_on_from(const ValidationProgress& saved);
    /// Before the first save. A line to show where another run's best checkpoint would be replaced, or would
    /// stay beside this one's; empty: there is none.
    std::string say_what_is_kept();

    /// Takes one down that followed so many steps. Returns whether its loss is lower than all before.
    bool add(const Validation& result, std::int64_t steps);
    /// The loss that was added last is no number, and no one before it was: why, and what to do. Else empty.
    std::string take_remark();
    bool ran_out_of_patience() const;

    /// A best checkpoint was saved. Whether the one before it was this run's, and is to go.
    bool replaced_own_best();

    /// For a checkpoint; none where nothing follows from it.
    std::optional<ValidationProgress> progress() const;
    /// Lines for the end of the run.
    std::string summary() const;
    /// Why the run is no success; empty: it is.
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
