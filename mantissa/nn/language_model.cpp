#include "mantissa/nn/language_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mantissa/base/error.h"
#include "mantissa/nn/models/gpt2.h"

namespace mantissa::inline v0::nn {

std::vector<std::string> language_model_names() { return gpt2_names(); }

LanguageModel language_model(std::string_view name, const ModelSizes& sizes) {
    return gpt2_language_model(with_sizes(gpt2_config(name), sizes));
}

LanguageModel language_model_of(std::span<const TensorView> weights, const std::string& source,
                                const std::filesystem::path& directory) {
    return gpt2_language_model(gpt2_config_of(weights, source, directory));
}

}  // namespace mantissa::nn
