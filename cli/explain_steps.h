// Parts of the steps that `explain` runs: options in a policy, and batches without data.
#pragma once

#include <memory>

#include "cli/run_options.h"
#include "mantissa/data/batch.h"
#include "mantissa/report/explain.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::cli {

/// Settings of a trainer under a policy, as the options have them.
TrainerOptions in_policy(const RunOptions& options, const Policy& policy, const Target& target);

/// Tokens without a text, or synthetic images: how long a step takes depends on sizes.
std::unique_ptr<const BatchSource> some_batches(const RunOptions& options, const nn::Model& model);

}  // namespace mantissa::cli
