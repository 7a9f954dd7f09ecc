// A training step that fits into memory: chooses settings that the user left open, and names changes that
// would help. It plans the same step in other ways and allocates nothing.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

/// The step as given, if it fits or has no adapters. Otherwise the first fitting step that changes open
/// settings alone: smaller and more micro-batches; blocks computed again; a trunk in INT8, then NF4. If none
/// fits, the step as given. All ranks call it and choose alike, by the least memory that a rank has.
TrainingPlan plan_that_fits(Device& device, nn::Model model, TrainerOptions options);

/// The settings that it chose, with their values: {"batch", "2"}.
std::vector<std::pair<std::string, std::string>> chosen_settings(const TrainerOptions& given,
                                                                 const TrainerOptions& planned);
/// The chosen settings in a line; empty if there are none.
std::string choice_text(const TrainerOptions& given, const TrainingPlan& plan);

struct MemoryFit {
    std::string change = {};  ///< fields and their values: "`recompute` block `batch` 1"
    std::int64_t bytes = 0;   ///< needed by the step with this change
    bool fits = false;
};

/// Smaller plans in the order of their cost in time, up to the first that fits. `at_length` makes the model
/// for another sequence length; null: examples have no length.
std::vector<MemoryFit> what_would_fit(const TrainingPlan& plan, std::int64_t available,
                                      const std::function<nn::Model(std::int64_t)>& at_length = nullptr);

/// One line per change; where nothing fits, the bytes of the state alone.
std::string fit_table(const std::vector<MemoryFit>& fits, std::int64_t state, std::int64_t available);

}  // namespace mantissa
