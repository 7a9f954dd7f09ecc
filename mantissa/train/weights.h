// The weights of a model in files that other people's tools read and write: its parameters and running
// statistics, as Model::files says.
#pragma once

#include <filesystem>

#include "mantissa/formats/unfit_weights.h"
#include "mantissa/nn/model.h"
#include "mantissa/runtime/state_block.h"

namespace mantissa::inline v0 {

/// Copies the weights in a safetensors file (or an index, or a directory with one) into the states,
/// converting F16 and BF16. Throws UserError that names the file, and every tensor that is missing, unknown
/// or of another shape or type; nothing was copied then. By name, what fits is copied, and the rest returned.
UnfitWeights load_weights(const nn::Model& model, const std::filesystem::path& path, StateBlock& state,
                          Match match = Match::strict);
/// Writes them as one safetensors file, whole or not at all.
void save_weights(const nn::Model& model, const StateBlock& state, const std::filesystem::path& path);

}  // namespace mantissa
