#include "mantissa/nn/language_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/formats/hf_config_keys.h"
#include "mantissa/formats/hf_gpt2.h"
#include "mantissa/formats/strict_json.h"
#include "mantissa/nn/decoder/family.h"
#include "mantissa/nn/language_model_files.h"
#include "mantissa/nn/models/gpt2.h"

namespace mantissa::inline v0::nn {

namespace {

/// The members of config.json, or an empty object where there is none.
nlohmann::json config_in(const std::filesystem::path& directory) {
    const std::filesystem::path path = directory / "config.json";
    if (!std::filesystem::exists(path)) return nlohmann::json::object();
    return parse_strict_json(MappedFile(path).text(), path.string());
}

/// Whether the directory holds a GPT-2: where config.json names no family, the weights say it. Throws
/// UserError for a family that is not known.
bool holds_gpt2(std::span<const TensorView> weights, const std::filesystem::path& directory) {
    const nlohmann::json config = config_in(directory);
    if (!config.is_object() || !config.contains("model_type"))
        return std::ranges::find(weights, "model.embed_tokens.weight", &TensorView::name) == weights.end();
    const nlohmann::json& type = config["model_type"];
    if (type == "gpt2") return true;
    std::vector<std::string> types = {"\"gpt2\""};
    for (const DecoderFamily* family : decoder_families()) {
        if (type == family->model_type) return false;
        types.push_back(fmt::format("\"{}\"", family->model_type));
    }
    throw UserError(
        fmt::format("{}: model_type is {}; known are {}. In Python mantissa.torch.trainer trains the "
                    "PyTorch module of most other families as it is",
                    (directory / "config.json").string(), json_excerpt(type), fmt::join(types, ", ")));
}

}  // namespace

std::vector<std::string> language_model_names() {
    std::vector<std::string> all = gpt2_names();
    for (std::string& name : decoder_names()) all.push_back(std::move(name));
    return all;
}

bool is_language_model(std::string_view name) { return is_gpt2(name) || is_decoder(name); }

LanguageModel language_model(std::string_view name, const ModelSizes& sizes) {
    if (is_gpt2(name)) return gpt2_language_model(with_sizes(gpt2_config(name), sizes));
    if (is_decoder(name)) return decoder_language_model(with_sizes(decoder_config(name), sizes));
    throw UserError(
        fmt::format("there is no model '{}'; there are {}", name, fmt::join(language_model_names(), ", ")));
}

void require_known_family(const std::filesystem::path& directory) { holds_gpt2({}, directory); }

LanguageModel language_model_of(std::span<const TensorView> weights, const std::string& source,
                                const std::filesystem::path& directory, double dropout) {
    const ModelSizes sizes{.dropout = dropout};
    if (!holds_gpt2(weights, directory)) {
        const DecoderConfig config = decoder_config_of(directory);
        LanguageModel model = decoder_language_model(with_sizes(config, sizes));
        model.dropout_of_files = largest_dropout(config_in(directory), dropout_keys(*config.family));
        return model;
    }
    LanguageModel model = gpt2_language_model(with_sizes(gpt2_config_of(weights, source, directory), sizes));
    model.dropout_of_files = largest_dropout(config_in(directory), hf_gpt2_dropouts);
    model.can_drop = true;
    return model;
}

}  // namespace mantissa::nn
