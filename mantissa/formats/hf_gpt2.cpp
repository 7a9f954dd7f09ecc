#include "mantissa/formats/hf_gpt2.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {

constexpr std::string_view prefix = "transformer.";

/// The layer of "h.12.ln_1.weight".
std::optional<std::int64_t> layer_of(std::string_view name) {
    std::int64_t layer = -1;
    if (!name.starts_with("h.")) return {};
    const char* last = name.data() + name.size();
    const auto [end, error] = std::from_chars(name.data() + 2, last, layer);
    if (error != std::errc{} || end == last || *end != '.' || layer < 0) return {};
    return layer;
}

/// Causal masks that old exports stored as if they were parameters (attn.c_attn.bias is none of them).
bool is_mask(std::string_view name) {
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

StoredWeight stored_in_hf(const TensorSpec& parameter) {
    return {parameter.name, is_transposed_in_hf(parameter.name) ? transposed() : AxisOrder{}};
}

}  // namespace

bool is_transposed_in_hf(std::string_view name) {
    return layer_of(name) &&
           (name.ends_with(".attn.c_attn.weight") || name.ends_with(".attn.c_proj.weight") ||
            name.ends_with(".mlp.c_fc.weight") || name.ends_with(".mlp.c_proj.weight"));
}

Gpt2Sizes gpt2_sizes_of(std::span<const TensorView> file, const std::string& source) {
    std::set<std::string, std::less<>> names;
    const TensorView *tokens = nullptr, *positions = nullptr;
    for (const TensorView& tensor : file) {
        std::string_view name = tensor.name;
        if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
        if (name == "wte.weight") tokens = &tensor;
        if (name == "wpe.weight") positions = &tensor;
        names.emplace(name);
    }
    // The highest layer with a tensor, of which others may be missing. No more than there are tensors:
    // "h.999999999.ln_1.weight" must not cost memory.
    std::int64_t layers = 0;
    for (const std::string& name : names)
        if (const auto layer = layer_of(name); layer && *layer < std::ssize(names))
            layers = std::max(layers, *layer + 1);
    for (const auto& [tensor, name] : {std::pair{tokens, "wte.weight"}, {positions, "wpe.weight"}})
        if (!tensor)
            throw UserError(
                fmt::format("{}: tensor \"{}\" is missing; expected a GPT-2 checkpoint", source, name));
    if (tokens->shape.size() != 2 || positions->shape.size() != 2 || tokens->shape[1] != positions->shape[1])
        throw UserError(
            fmt::format("{}: \"wte.weight\" {} and \"wpe.weight\" {}: expected [vocabulary, channels] and "
                        "[context, channels]",
                        source, shape_text(tokens->shape), shape_text(positions->shape)));
    return {.layers = layers,
            .channels = tokens->shape[1],
            .context = positions->shape[0],
            .vocabulary = tokens->shape[0],
            .bias = names.contains("ln_f.bias")};
}

WeightFiles hf_gpt2_files() {
    return {.kind = "a GPT-2 checkpoint",
            .prefix = std::string(prefix),
            .stored = stored_in_hf,
            .ignored = is_mask,
            .tied = {{"lm_head.weight", "wte.weight"}}};
}

std::string hf_gpt2_config(const Gpt2Sizes& sizes, std::int64_t heads, double dropout) {
    nlohmann::ordered_json config = {{"architectures", {"GPT2LMHeadModel"}},
                                     {"model_type", "gpt2"},
                                     {"vocab_size", sizes.vocabulary},
                                     {"n_positions", sizes.context},
                                     {"n_embd", sizes.channels},
                                     {"n_layer", sizes.layers},
                                     {"n_head", heads},
                                     {"activation_function", "gelu_new"},  // the tanh form
                                     {"layer_norm_epsilon", 1e-5},
                                     {"bos_token_id", nullptr},
                                     {"eos_token_id", nullptr},
                                     {"tie_word_embeddings", true},
                                     {"torch_dtype", "float32"}};
    for (const std::string_view name : hf_gpt2_dropouts) config[std::string(name)] = dropout;
    // Their library knows no such model; biases that are missing start at zero there, which is the same.
    if (!sizes.bias) config["bias"] = false;
    return config.dump(2) + "\n";
}

}  // namespace mantissa
