// Text models from files of other projects' tools.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "mantissa/nn/language_model.h"

namespace mantissa::inline v0 {
struct TensorView;
}

namespace mantissa::inline v0::nn {

/// Throws UserError if the directory has a config.json of an unknown family.
void require_known_family(const std::filesystem::path& directory);

/// The model in a directory of other projects' tools: its weights, with names and shapes that tell the sizes,
/// and its config.json. `source` names the weights; `dropout` is for training and overrides the file. Throws
/// UserError that names the file if the model is unknown, or its family has no dropout.
LanguageModel language_model_of(std::span<const TensorView> weights, const std::string& source,
                                const std::filesystem::path& directory, double dropout = 0);

}  // namespace mantissa::nn
