#include "mantissa/nn/language_model.h"

#include <nlohmann/json.hpp>

#include "mantissa/base/file.h"
#include "mantissa/formats/hf_config_keys.h"
#include "mantissa/formats/strict_json.h"
#include "mantissa/nn/decoder/family.h"
#include "mantissa/nn/language_model_files.h"

namespace mantissa::inline v0::nn {

namespace {

/// The members of config.json, or an empty object where there is none.
nlohmann::json config_in(const std::filesystem::path& directory) {
    const std::filesystem::path path = directory / "config.json";
    if (!std::filesystem::exists(path)) return nlohmann::json::object();
    return parse_strict_json(MappedFile(path).text(), path.string());
}

}  // namespace

std::vector<std::string> language_model_names() { return decoder_names(); }

bool is_language_model(std::string_view name) { return is_decoder(name); }

LanguageModel language_model(std::string_view name, const ModelSizes& sizes) {
    return decoder_language_model(with_sizes(decoder_config(name), sizes));
}

void require_known_family(const std::filesystem::path& directory) {
    const nlohmann::json config = config_in(directory);
    if (config.is_object() && config.contains("model_type"))
        family_in(config, (directory / "config.json").string());
}

LanguageModel language_model_of(std::span<const TensorView> weights, const std::string& source,
                                const std::filesystem::path& directory, double dropout) {
    const DecoderConfig config = decoder_config_of(directory, weights, source);
    LanguageModel model = decoder_language_model(with_sizes(config, {.dropout = dropout}));
    model.dropout_of_files = largest_dropout(config_in(directory), dropout_keys(*config.family));
    model.can_drop = config.family->chosen_parts;
    return model;
}

}  // namespace mantissa::nn
