// Models of text by the files of other people's tools.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "mantissa/nn/language_model.h"

namespace mantissa::inline v0 {
struct TensorView;
}

namespace mantissa::inline v0::nn {

/// Throws UserError if the directory has a config.json of a family that this project does not know.
void require_known_family(const std::filesystem::path& directory);

/// The model that a directory of other people's tools holds: its weights, whose names and shapes say the
/// sizes, and its config.json. `source` names the weights; `dropout` is that of training, whatever the file
/// says. Throws UserError that names the file if it is none that this project knows, or of a family without
/// dropout.
LanguageModel language_model_of(std::span<const TensorView> weights, const std::string& source,
                                const std::filesystem::path& directory, double dropout = 0);

}  // namespace mantissa::nn
