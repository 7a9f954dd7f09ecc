// GPT-2 as Hugging Face's library saves it: which model a directory holds.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/formats/hf_config_keys.h"
#include "mantissa/formats/hf_gpt2.h"
#include "mantissa/formats/strict_json.h"
#include "mantissa/nn/models/gpt2.h"

namespace mantissa::inline v0::nn {

namespace {

/// The members of config.json that are read or held to a value; and those that change no result: n_ctx, which
/// nothing reads any more, heads of other tasks (summary_* and dropouts of classifiers), and in which format
/// attention is added up.
constexpr std::string_view keys_of_gpt2[] = {"activation_function",
                                             "attn_pdrop",
                                             "bias",
                                             "classifier_dropout",
                                             "embd_pdrop",
                                             "hidden_dropout",
                                             "hidden_size",
                                             "layer_norm_epsilon",
                                             "max_position_embeddings",
                                             "n_ctx",
                                             "n_embd",
                                             "n_head",
                                             "n_inner",
                                             "n_layer",
                                             "n_positions",
                                             "num_attention_heads",
                                             "num_hidden_layers",
                                             "reorder_and_upcast_attn",
                                             "resid_pdrop",
                                             "scale_attn_by_inverse_layer_idx",
                                             "scale_attn_weights",
                                             "summary_activation",
                                             "summary_first_dropout",
                                             "summary_last_dropout",
                                             "summary_proj_to_labels",
                                             "summary_type",
                                             "summary_use_proj",
                                             "tie_word_embeddings",
                                             "vocab_size"};

/// The members by which a GPT-2 may differ from what this project computes.
void require_known_kind(const nlohmann::json& config, const Gpt2Sizes& sizes, const std::string& source) {
    const std::pair<const char*, nlohmann::json> expected[] = {
        {"model_type", "gpt2"},       {"activation_function", "gelu_new"},
        {"layer_norm_epsilon", 1e-5}, {"n_inner", 4 * sizes.channels},
        {"scale_attn_weights", true}, {"scale_attn_by_inverse_layer_idx", false},
        {"tie_word_embeddings", true}};
    for (const auto& [name, value] : expected)
        if (config.contains(name) && !config[name].is_null() && config[name] != value)
            throw UserError(fmt::format("{}: {} is {}, only {} can be run", source, name,
                                        json_excerpt(config[name]), value.dump()));
    require_known_keys(config, keys_of_gpt2, source);
}

/// Its library takes these names for the others, too.
constexpr std::pair<const char*, const char*> other_names[] = {{"hidden_size", "n_embd"},
                                                               {"max_position_embeddings", "n_positions"},
                                                               {"num_attention_heads", "n_head"},
                                                               {"num_hidden_layers", "n_layer"}};

nlohmann::json with_one_name_each(nlohmann::json config, const std::string& source) {
    for (const auto& [other, name] : other_names) {
        if (!config.contains(other)) continue;
        if (config.contains(name) && config[name] != config[other])
            throw UserError(fmt::format("{}: {} is {}, and {}, which is the same, {}", source, name,
                                        json_excerpt(config[name]), other, json_excerpt(config[other])));
        config[name] = config[other];
    }
    return config;
}

/// Weights decide; a file beside them that says another size is of another model.
void require_sizes(const nlohmann::json& config, const Gpt2Sizes& sizes, const std::string& source) {
    const std::pair<const char*, std::int64_t> expected[] = {{"n_layer", sizes.layers},
                                                             {"n_embd", sizes.channels},
                                                             {"n_positions", sizes.context},
                                                             {"vocab_size", sizes.vocabulary}};
    for (const auto& [name, value] : expected)
        if (config.contains(name) && config[name] != value)
            throw UserError(fmt::format("{}: {} is {}, but the weights beside it are of {}", source, name,
                                        json_excerpt(config[name]), value));
}

bool has_sizes(const Gpt2Config& config, const Gpt2Sizes& sizes) {
    return sizes == Gpt2Sizes{.layers = config.layers,
                              .channels = config.channels,
                              .context = config.context,
                              .vocabulary = config.vocabulary,
                              .bias = config.bias};
}

/// A published model of these sizes, or none.
std::optional<Gpt2Config> published(const Gpt2Sizes& sizes) {
    for (const std::string& name : gpt2_names())
        if (const Gpt2Config config = gpt2_config(name); has_sizes(config, sizes)) return config;
    return {};
}

}  // namespace

Gpt2Config gpt2_config_of(std::span<const TensorView> weights, const std::string& source,
                          const std::filesystem::path& directory) {
    const Gpt2Sizes sizes = gpt2_sizes_of(weights, source);
    const std::optional<Gpt2Config> known = published(sizes);
    const std::filesystem::path path = directory / "config.json";
    if (!std::filesystem::exists(path)) {
        if (known) return *known;
        throw UserError(
            fmt::format("{}: is missing, and only it says how many heads this model has", path.string()));
    }
    const nlohmann::json json =
        with_one_name_each(parse_strict_json(MappedFile(path).text(), path.string()), path.string());
    require_known_kind(json, sizes, path.string());
    require_sizes(json, sizes, path.string());
    const auto heads = static_cast<std::int64_t>(
        require_unsigned(require_member(json, "n_head", path.string(), "a GPT-2"), path.string(), "n_head"));
    if (heads < 1 || sizes.channels % heads != 0)
        throw UserError(fmt::format("{}: {} channels cannot be shared by {} heads", path.string(),
                                    sizes.channels, heads));
    if (known && known->heads == heads) return *known;
    return {.name = directory.filename().string(),
            .layers = sizes.layers,
            .heads = heads,
            .channels = sizes.channels,
            .vocabulary = sizes.vocabulary,
            .context = sizes.context,
            .bias = sizes.bias};
}

}  // namespace mantissa::nn
