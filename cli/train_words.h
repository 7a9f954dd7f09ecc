// Text of `train` before its first step: its plan, options without effect, and validations that do not
// measure new data.
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

/// The plan in several lines, with the memory taken before the trainer's own; `samples`: bytes for samples.
std::string header_of(const PlannedRun& run, std::int64_t samples);
/// Bytes by part, the predicted time, and whether it fits; otherwise plans that would fit.
std::string fit_of(const PlannedRun& run);

/// Warns of options without effect in a run that begins with this step, and of unexpected effects.
/// `longest_sequence`: of this run and the runs that it continues; 0: not known.
void say_what_does_nothing(const PlannedRun& run, std::int64_t first_step, std::int64_t longest_sequence);

/// Warns if held-out data is trained on, or was before; tells if a continued run keeps an earlier version's
/// split. `began`: the checkpoint that was begun from, or weights that are none; `before`: its training data,
/// if known.
void warn_of_validation(const TrainOptions& options, const TrainInput& input,
                        const std::filesystem::path& began, const std::optional<TrainedOn>& before);

}  // namespace mantissa::cli
