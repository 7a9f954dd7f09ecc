// Words on a validation where the checkpoint that it begins from was trained on the same data.
#pragma once

#include <filesystem>
#include <optional>

#include "cli/train_input.h"
#include "cli/train_options.h"

namespace mantissa::cli {

/// Warns where something that is held out now was trained on before; says where a run of an earlier version
/// goes on with the split of its time. `began`: the checkpoint that was begun from, or weights that are none,
/// and what it was trained on, where it says so.
void warn_of_what_was_trained_on(const TrainOptions& options, const TrainInput& input,
                                 const std::filesystem::path& began, const std::optional<TrainedOn>& before);

}  // namespace mantissa::cli
