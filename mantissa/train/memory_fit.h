// A training step that fits into memory: settings that nobody gave are chosen so that it does, and changes
// are named that would help. The same step planned in other ways, nothing allocated.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

/// The step; of one with adapters that does not fit, the first that fits of those that change open settings
/// alone: smaller micro-batches, of which a step then has more; blocks computed again; a trunk in INT8; in
/// NF4. Where none fits, the step as given. Ranks choose alike, by the least memory that one of them has: all
/// call it.
TrainingPlan plan_that_fits(Device& device, nn::Model model, TrainerOptions options);

/// Fields that it chose, and their values: {"batch", "2"}.
std::vector<std::pair<std::string, std::string>> chosen_settings(const TrainerOptions& given,
                                                                 const TrainerOptions& planned);
/// These in a line; empty if there are none.
std::string choice_text(const TrainerOptions& given, const TrainingPlan& plan);

struct MemoryFit {
    std::string change = {};  ///< fields and their values: "`recompute` block `batch` 1"
    std::int64_t bytes = 0;   ///< that the step so planned takes
    bool fits = false;
};

/// Smaller plans in the order of the time that they cost, up to the first that fits. `at_length` makes the
/// model for examples of another length, as sequences have; null: its examples have none.
std::vector<MemoryFit> what_would_fit(const TrainingPlan& plan, std::int64_t available,
                                      const std::function<nn::Model(std::int64_t)>& at_length = nullptr);

/// A line each; and, where nothing fits, what the state alone takes.
std::string fit_table(const std::vector<MemoryFit>& fits, std::int64_t state, std::int64_t available);

}  // namespace mantissa
