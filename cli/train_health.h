// Steps of a run that went wrong: gradients that underflow, steps that were not finite.
#pragma once

#include <string>

#include "cli/train_log.h"
#include "cli/train_options.h"
#include "cli/train_ranks.h"
#include "mantissa/train/trainer.h"

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

}  // namespace mantissa::cli
