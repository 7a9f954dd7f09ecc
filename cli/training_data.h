// Data that a command trains a model on: a text, read from front to back, images, or synthetic ones.
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
    const BatchSource* batches = nullptr;          ///< those of one of these
};

/// For `model`, which the options stand for, with so many examples a step.
TrainingData open_training_data(const RunOptions& options, const nn::Model& model, std::int64_t batch,
                                CorpusOptions::Untokenized untokenized);

/// The model that the options stand for, and images of --images in random order, or what it else trains on.
/// `hold_out`: which of the images are kept for validation.
TrainingData open_training_data(const RunOptions& options, const ImageDataOptions& images, std::int64_t batch,
                                HoldOut hold_out = HoldOut::nothing);

/// Begins with the weights of --from, by one of the two below.
void begin_with_files(const RunOptions& options, const TrainingData& data, StateBlock& weights);

/// Copies the weights of --from, for a model that writes text. Returns what to say of it.
std::string begin_with_files(const RunOptions& options, StateBlock& weights);

/// The same for a network for images, whose head is made anew where the files' tells other classes apart.
/// `classes`: the names of those that it is to learn; null: the files' own. Throws UserError, naming every
/// tensor, where the trunk is not that of the network.
std::string begin_with_files(const RunOptions& options, const nn::ImageModel& network,
                             const std::vector<std::string>* classes, StateBlock& weights);

}  // namespace mantissa::cli
