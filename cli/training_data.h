// What a command trains a model on: a text, read from front to back, or synthetic pictures.
#pragma once

#include <memory>
#include <string>

#include "cli/run_options.h"
#include "mantissa/data/batch.h"

namespace mantissa::cli {

struct TrainingData {
    std::string description;         ///< for people
    std::unique_ptr<Corpus> corpus;  ///< what the batches are read from; null: they are synthetic
    std::unique_ptr<const BatchSource> batches = {};
};

/// Sequences of a text, as it was opened: packed documents where it tells them apart. Both must outlive them.
std::unique_ptr<BatchSource> text_batches(const Corpus& corpus, TokenRange range, std::int64_t sequence,
                                          const BatchOptions& options);

/// For `model`, which the options stand for, with so many examples a step.
TrainingData open_training_data(const RunOptions& options, const nn::Model& model, std::int64_t batch,
                                CorpusOptions::Untokenized untokenized);

}  // namespace mantissa::cli
