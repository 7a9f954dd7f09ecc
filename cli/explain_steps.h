// Parts of the steps that `explain` runs: options in a policy, batches without data, and the machine's peaks.
#pragma once

#include <memory>

#include "cli/run_options.h"
#include "mantissa/data/batch.h"
#include "mantissa/report/explain.h"

namespace mantissa::cli {

/// Settings of a trainer under a policy, as the options have them.
TrainerOptions in_policy(const RunOptions& options, const Policy& policy, const Target& target);

Explanation explain_step(const TrainingPlan& plan);

/// Tokens without a text, or synthetic pictures: how long a step takes depends on sizes.
std::unique_ptr<const BatchSource> some_batches(const RunOptions& options, const nn::Model& model);

/// The largest peaks, measured here and kept from earlier. Copying where there is memory for it beyond the
/// caches, else in what there is.
Peaks peaks_of(Device& device);

}  // namespace mantissa::cli
