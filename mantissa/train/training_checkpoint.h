// A training run on disk: what a checkpoint must hold so that the run goes on as if it had never stopped, to
// the bit.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "mantissa/train/trainer.h"

namespace mantissa::inline v0 {

/// What a run follows from besides its trainer, in words, by name: the batches it reads, its learning rate.
using RunInputs = std::map<std::string, std::string>;

/// Throws UserError if a checkpoint of this trainer cannot be made in `directory`: what is there is none, no
/// file can be made, or the disk has no room. To be called before training begins.
void require_room_for_checkpoint(const std::filesystem::path& directory, const TrainingPlan& plan);

/// Saves parameters, optimizer state and the position of the run; what was in `directory` is kept as
/// DIRECTORY.previous. Throws UserError, with everything left as it was, if it cannot.
void save_training(const std::filesystem::path& directory, Trainer& trainer, const RunInputs& inputs = {});

/// Puts the trainer where a checkpoint was saved. Returns an empty text, or a warning to show: that the
/// checkpoint was damaged and the one before it was taken, that other passes or instructions compute from
/// here on, whose roundings are others, or that it goes on from other inputs. Throws UserError, the trainer
/// untouched, if there is none, or, naming every difference, if it is of another configuration of the model
/// or optimizer, or of another policy, loss scale, seed, batch or accumulation.
std::string resume_training(const std::filesystem::path& directory, Trainer& trainer,
                            const RunInputs& inputs = {});

}  // namespace mantissa
