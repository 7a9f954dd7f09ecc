// A training run on disk: what a checkpoint must hold so that the run goes on as if it had never stopped, to
// the bit.
#pragma once

#include <filesystem>
#include <string>

#include "mantissa/train/trainer.h"

namespace mantissa {

/// Saves parameters, optimizer state and the position of the run; what was in `directory` is kept as
/// DIRECTORY.previous. Throws UserError, with everything left as it was, if it cannot.
void save_training(const std::filesystem::path& directory, Trainer& trainer);

/// Puts the trainer where a checkpoint was saved. Returns an empty text, or a warning to show: that the
/// checkpoint was damaged and the one before it was taken, or that other passes or instructions compute from
/// here on, whose roundings are others. Throws UserError, the trainer untouched, if there is none, or if it
/// is of another model, policy, seed, batch, sequence, accumulation or optimizer.
std::string resume_training(const std::filesystem::path& directory, Trainer& trainer);

}  // namespace mantissa
