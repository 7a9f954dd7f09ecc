// Words of `train` before its first step: its plan, what of the options does nothing, and validations that do
// not tell of new data.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "cli/train_input.h"
#include "cli/train_options.h"
#include "cli/train_ranks.h"
#include "mantissa/report/kept_peaks.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::cli {

/// A run and its plan.
struct PlannedRun {
    const TrainOptions& options;
    const TrainRanks& ranks;
    const TrainInput& input;
    const TrainingPlan& plan;
    KeptPeaks& peaks;
};

/// The plan in some lines, with the memory that is taken before the trainer takes its own; `samples`: bytes
/// for samples.
std::string header_of(const PlannedRun& run, std::int64_t samples);
/// Bytes by part, the predicted time, and whether it fits; where it does not, what would.
std::string fit_of(const PlannedRun& run);

/// Says what does nothing in a run that begins with this step, and what is not as one might think.
/// `longest_sequence`: of this run and those that it goes on from; 0: not known.
void say_what_does_nothing(const PlannedRun& run, std::int64_t first_step, std::int64_t longest_sequence);

/// Warns where something that is held out now is trained on, or was trained on before; says where a run of an
/// earlier version goes on with the split of its time. `began`: the checkpoint that was begun from, or
/// weights that are none, and what it was trained on, where it says so.
void warn_of_validation(const TrainOptions& options, const TrainInput& input,
                        const std::filesystem::path& began, const std::optional<TrainedOn>& before);

}  // namespace mantissa::cli
