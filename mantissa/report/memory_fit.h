// Changes that would let a training step fit into so much memory: the same step planned in other ways,
// nothing allocated.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

struct MemoryFit {
    std::string change = {};  ///< fields and their values: "`recompute` block `batch` 1"
    std::int64_t bytes = 0;   ///< that the step so planned takes
    bool fits = false;
};

/// Smaller plans in the order of the time that they cost, up to the first that fits. `at_length` makes the
/// model for examples of another length, as sequences have; null: its examples have none.
std::vector<MemoryFit> what_would_fit(const TrainingPlan& plan, std::int64_t available,
                                      const std::function<nn::Model(std::int64_t)>& at_length = nullptr);

/// Settings of a step that nobody gave, so that they may be chosen.
struct OpenSettings {
    bool trunk = false, batch = false, recompute = false;
};

/// The step's options, or the first that fit of those that change open settings alone: smaller micro-batches,
/// of which a step then has more; blocks computed again; a trunk in INT8; in NF4. None: none fits.
std::optional<TrainerOptions> first_that_fits(const TrainingPlan& plan, std::int64_t available,
                                              const OpenSettings& open);

/// A line each; and, where nothing fits, what the state alone takes.
std::string fit_table(const std::vector<MemoryFit>& fits, std::int64_t state, std::int64_t available);

}  // namespace mantissa
