#include "mantissa/nn/language_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/formats/hf_config_keys.h"
#include "mantissa/formats/hf_gpt2.h"
#include "mantissa/formats/hf_llama.h"
#include "mantissa/formats/strict_json.h"
#include "mantissa/nn/language_model_files.h"
#include "mantissa/nn/models/gpt2.h"
#include "mantissa/nn/models/llama.h"

namespace mantissa::inline v0::nn {

namespace {

using Weights = std::span<const TensorView>;

/// One family of models.
struct LanguageFamily {
    std::vector<std::string> model_types;  ///< in config.json
    const char* embedding;                 ///< the weight that others have not
    std::vector<std::string> (*names)();
    bool (*knows)(std::string_view name);
    LanguageModel (*make)(std::string_view name, const ModelSizes& sizes);
    LanguageModel (*of_files)(Weights weights, const std::string& source,
                              const std::filesystem::path& directory, double dropout);
};

/// The largest dropout in the directory's config.json; 0 where it tells of none.
double dropout_in(const std::filesystem::path& directory, std::span<const char* const> names) {
    const std::filesystem::path path = directory / "config.json";
    if (!std::filesystem::exists(path)) return 0;
    return largest_dropout(parse_strict_json(MappedFile(path).text(), path.string()), names);
}

const LanguageFamily language_families[] = {
    {{"gpt2"},
     "wte.weight",
     gpt2_names,
     is_gpt2,
     [](std::string_view name, const ModelSizes& sizes) {
         return gpt2_language_model(with_sizes(gpt2_config(name), sizes));
     },
     [](Weights weights, const std::string& source, const std::filesystem::path& directory, double dropout) {
         LanguageModel model = gpt2_language_model(
             with_sizes(gpt2_config_of(weights, source, directory), {.dropout = dropout}));
         model.dropout_of_files = dropout_in(directory, hf_gpt2_dropouts);
         model.can_drop = true;
         return model;
     }},
    {{"llama", "mistral"},
     "model.embed_tokens.weight",
     llama_names,
     is_llama,
     [](std::string_view name, const ModelSizes& sizes) {
         return llama_language_model(with_sizes(llama_config(name), sizes));
     },
     [](Weights, const std::string&, const std::filesystem::path& directory, double dropout) {
         LanguageModel model =
             llama_language_model(with_sizes(llama_config_of(directory), {.dropout = dropout}));
         model.dropout_of_files = dropout_in(directory, hf_llama_dropouts);
         return model;
     }}};

/// The family of these weights; the first where they are none's.
const LanguageFamily& family_of(Weights weights) {
    for (const LanguageFamily& family : language_families)
        if (std::ranges::find(weights, family.embedding, &TensorView::name) != weights.end()) return family;
    return language_families[0];
}

/// The family that config.json names, or that of the weights where there is no such file, or no name in it.
const LanguageFamily& family_of(Weights weights, const std::filesystem::path& directory) {
    const std::filesystem::path path = directory / "config.json";
    if (!std::filesystem::exists(path)) return family_of(weights);
    const nlohmann::json config = parse_strict_json(MappedFile(path).text(), path.string());
    if (!config.is_object() || !config.contains("model_type")) return family_of(weights);
    std::vector<std::string> types;
    for (const LanguageFamily& family : language_families) {
        for (const std::string& type : family.model_types) {
            if (config["model_type"] == type) return family;
            types.push_back(fmt::format("\"{}\"", type));
        }
    }
    throw UserError(
        fmt::format("{}: model_type is {}; known are {}. In Python mantissa.torch.trainer trains the "
                    "PyTorch module of most other families as it is",
                    path.string(), json_excerpt(config["model_type"]), fmt::join(types, ", ")));
}

}  // namespace

std::vector<std::string> language_model_names() {
    std::vector<std::string> all;
    for (const LanguageFamily& family : language_families)
        for (const std::string& name : family.names()) all.push_back(name);
    return all;
}

bool is_language_model(std::string_view name) {
    return std::ranges::any_of(language_families,
                               [&](const LanguageFamily& family) { return family.knows(name); });
}

LanguageModel language_model(std::string_view name, const ModelSizes& sizes) {
    for (const LanguageFamily& family : language_families)
        if (family.knows(name)) return family.make(name, sizes);
    throw UserError(
        fmt::format("there is no model '{}'; there are {}", name, fmt::join(language_model_names(), ", ")));
}

void require_known_family(const std::filesystem::path& directory) { family_of({}, directory); }

LanguageModel language_model_of(std::span<const TensorView> weights, const std::string& source,
                                const std::filesystem::path& directory, double dropout) {
    return family_of(weights, directory).of_files(weights, source, directory, dropout);
}

}  // namespace mantissa::nn
