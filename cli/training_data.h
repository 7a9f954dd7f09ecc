// Data that a command trains a model on: a text in sequential order, images, or synthetic data.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/image_data.h"
#include "cli/run_options.h"
#include "mantissa/data/batch.h"
#include "mantissa/runtime/state_block.h"

namespace mantissa::cli {

struct TrainingData {
    nn::Model model = {};
    std::string description = {};                  ///< for people
    std::unique_ptr<Corpus> corpus = {};           ///< of a text
    std::unique_ptr<const ImageData> images = {};  ///< of --images
    std::unique_ptr<const BatchSource> made = {};  ///< of a text, or synthetic images
    const BatchSource* batches = nullptr;          ///< the batches of one of these
};

/// Data for `model`, which the options describe, with so many examples a step.
TrainingData open_training_data(const RunOptions& options, const nn::Model& model, std::int64_t batch,
                                CorpusOptions::Untokenized untokenized);

/// The options' model, with images of --images in random order, or its other data. `hold_out`: the choice of
/// images for validation.
TrainingData open_training_data(const RunOptions& options, const ImageDataOptions& images, std::int64_t batch,
                                HoldOut hold_out = HoldOut::nothing);

/// Sets the weights of --from, by one of the two functions below.
void begin_with_files(const RunOptions& options, const TrainingData& data, StateBlock& weights);

/// Copies the weights of --from, for a text model. Returns a text to print about it.
std::string begin_with_files(const RunOptions& options, StateBlock& weights);

/// Copies the weights of --from, for an image network; its head is made anew if the files' head has other
/// classes. `classes`: names of the classes to learn; null: the files' own. Throws UserError, naming every
/// tensor, if the trunk differs from the network's.
std::string begin_with_files(const RunOptions& options, const nn::ImageModel& network,
                             const std::vector<std::string>* classes, StateBlock& weights);

}  // namespace mantissa::cli
