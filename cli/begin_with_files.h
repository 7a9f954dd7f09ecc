// --from: the weights that a command begins with.
#pragma once

#include <string>
#include <vector>

#include "cli/run_options.h"

#include "mantissa/runtime/state_block.h"

namespace mantissa::cli {

/// Copies the weights of --from, for a model that writes text. Returns what to say of it.
std::string begin_with_files(const RunOptions& options, StateBlock& weights);

/// The same for a network for images, whose head is made anew where the files' tells other classes apart.
/// `classes`: the names of those that it is to learn; null: the files' own. Throws UserError, naming every
/// tensor, where the trunk is not that of the network.
std::string begin_with_files(const RunOptions& options, const nn::ImageModel& network,
                             const std::vector<std::string>* classes, StateBlock& weights);

}  // namespace mantissa::cli
