// GPT-2: Radford et al., "Language models are unsupervised multitask learners", 2019. Pre-norm blocks, tanh
// GELU, learned positions, the embedding tied to the output, initial weights from N(0, 0.02) with the
// projections onto the residual stream scaled by 1/sqrt(2 L). Files store four weights a layer as [in, out];
// here they are [out, in]. Their weights tell all sizes but the heads.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "mantissa/base/error.h"
#include "mantissa/formats/strict_json.h"
#include "mantissa/nn/families/families.h"

namespace mantissa::inline v0::nn {

namespace {

constexpr std::string_view prefix = "transformer.";
constexpr std::string_view dropouts[] = {"embd_pdrop", "attn_pdrop", "resid_pdrop"};

/// The layer of "h.12.ln_1.weight", or -1.
std::int64_t layer_of(std::string_view name) {
    std::int64_t layer = -1;
    if (!name.starts_with("h.")) return -1;
    const char* last = name.data() + name.size();
    const auto [end, error] = std::from_chars(name.data() + 2, last, layer);
    return error == std::errc{} && end != last && *end == '.' ? layer : -1;
}

StoredWeight stored(const TensorSpec& parameter) {
    const auto ends = [&](std::string_view end) { return parameter.name.ends_with(end); };
    const bool turned =
        layer_of(parameter.name) >= 0 && (ends(".attn.c_attn.weight") || ends(".attn.c_proj.weight") ||
                                          ends(".mlp.c_fc.weight") || ends(".mlp.c_proj.weight"));
    return {parameter.name, turned ? transposed() : AxisOrder{}};
}

/// Names with and without the prefix. Ignores the causal masks that old exports stored beside parameters
/// (attn.c_attn.bias is a parameter).
WeightFiles files_of_gpt2() {
    return {.kind = "a GPT-2 checkpoint",
            .prefix = std::string(prefix),
            .stored = stored,
            .ignored =
                [](std::string_view name) {
                    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
                },
            .tied = {{"lm_head.weight", "wte.weight"}}};
}

/// The members of config.json that follow from the weights' names and shapes.
nlohmann::json sizes_of(std::span<const TensorView> weights, const std::string& source) {
    std::set<std::string, std::less<>> names;
    const TensorView *tokens = nullptr, *positions = nullptr;
    for (const TensorView& tensor : weights) {
        std::string_view name = tensor.name;
        if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
        if (name == "wte.weight") tokens = &tensor;
        if (name == "wpe.weight") positions = &tensor;
        names.emplace(name);
    }
    // The highest layer with a tensor; other layers may lack some. At most the number of tensors:
    // "h.999999999.ln_1.weight" must not cost memory.
    std::int64_t layers = 0;
    for (const std::string& name : names)
        if (const std::int64_t layer = layer_of(name); layer < std::ssize(names))
            layers = std::max(layers, layer + 1);
    for (const auto& [tensor, name] : {std::pair{tokens, "wte.weight"}, {positions, "wpe.weight"}})
        if (!tensor)
            throw UserError(
                fmt::format("{}: tensor \"{}\" is missing; expected a GPT-2 checkpoint", source, name));
    if (tokens->shape.size() != 2 || positions->shape.size() != 2 || tokens->shape[1] != positions->shape[1])
        throw UserError(
            fmt::format("{}: \"wte.weight\" {} and \"wpe.weight\" {}: expected [vocabulary, channels] and "
                        "[context, channels]",
                        source, shape_text(tokens->shape), shape_text(positions->shape)));
    const auto size = [](std::int64_t count) { return static_cast<std::uint64_t>(count); };
    return {{"n_layer", size(layers)},
            {"n_embd", size(tokens->shape[1])},
            {"n_positions", size(positions->shape[0])},
            {"vocab_size", size(tokens->shape[0])},
            {"bias", names.contains("ln_f.bias")}};
}

/// Completes the configuration from the weights. A file beside them with another size belongs to another
/// model. Without a file, it is the published model of these sizes.
void complete_gpt2(nlohmann::json& config, std::span<const TensorView> weights, const std::string& source,
                   const std::string& path) {
    const nlohmann::json sizes = sizes_of(weights, source);
    for (const auto& [name, value] : sizes.items()) {
        if (name != "bias" && config.contains(name) && config[name] != value)
            throw UserError(fmt::format("{}: {} is {}, but the weights beside it are of {}", path, name,
                                        json_excerpt(config[name]), value.dump()));
        config[name] = value;
    }
    if (config.size() > sizes.size() + 1) return;  // there was a file; 1: its model_type
    for (const DecoderPreset& preset : gpt2_family().presets) {
        nlohmann::json published = {{"n_positions", 1024}, {"vocab_size", 50257}, {"bias", true}};
        published.update(nlohmann::json::parse(preset.config));
        config["n_head"] = published["n_head"];
        published["model_type"] = "gpt2";
        if (published == config) return;
    }
    throw UserError(fmt::format("{}: is missing, and only it says how many heads this model has", path));
}

void read_gpt2(const ConfigFile& file, Decoder& parts) {
    parts.hidden = 4 * parts.channels;
    if (file.given("n_inner") && file.integer("n_inner") != parts.hidden)
        file.refuse("n_inner", fmt::format("only {} can be run", parts.hidden));
}

/// Writes dropouts, since the class defaults to 0.1. It has no models without biases; missing biases start at
/// zero there, which is equivalent.
void write_gpt2(const Decoder& parts, nlohmann::ordered_json& config) {
    for (const std::string_view name : dropouts) config[std::string(name)] = parts.dropout;
    if (parts.bias_norm) config.erase("bias");
}

std::vector<ConfigKey> keys_of_gpt2() {
    using enum ConfigKey::Absent;
    std::vector<ConfigKey> keys = {{"vocab_size", &Decoder::vocabulary},
                                   {"n_positions", &Decoder::context},
                                   {"n_embd", &Decoder::channels, refused},
                                   {"n_layer", &Decoder::layers, refused},
                                   {"n_head", &Decoder::heads, refused},
                                   {"activation_function", ConfigKey::Held{"\"gelu_new\""}},
                                   {"layer_norm_epsilon", ConfigKey::Held{"1e-05"}},
                                   {"scale_attn_weights", ConfigKey::Held{"true"}},
                                   {"scale_attn_by_inverse_layer_idx", ConfigKey::Held{"false"}},
                                   {"tie_word_embeddings", ConfigKey::Held{"true"}},
                                   {"bias", ConfigKey::Flags{&Decoder::bias_norm, &Decoder::bias_qkv,
                                                             &Decoder::bias_output, &Decoder::bias_mlp}}};
    for (const std::string_view name : dropouts) keys.push_back({name, ConfigKey::Dropout{}});
    // Unused: n_ctx, heads for other tasks, the accumulation format of attention.
    for (const std::string_view name :
         {"n_ctx", "classifier_dropout", "hidden_dropout", "reorder_and_upcast_attn", "summary_activation",
          "summary_first_dropout", "summary_last_dropout", "summary_proj_to_labels", "summary_type",
          "summary_use_proj"})
        keys.push_back({name, ConfigKey::NoEffect{}});
    return keys;
}

}  // namespace

const DecoderFamily& gpt2_family() {
    /// gpt2-tiny is ours, for tests and first steps: a few seconds of training on bytes or a small
    /// vocabulary.
    static const DecoderFamily row = {
        .model_type = "gpt2",
        .architecture = "GPT2LMHeadModel",
        .parts = {.vocabulary = 50257,
                  .context = 1024,
                  .tied = true,
                  .learned_positions = true,
                  .layer_norms = true,
                  .bias_qkv = true,
                  .bias_output = true,
                  .bias_mlp = true,
                  .activation = Activation::gelu_tanh,
                  .gated = false},
        .names = {.body = "",
                  .embedding = "wte",
                  .positions = "wpe",
                  .layers = "h",
                  .last_norm = "ln_f",
                  .before_attention = "ln_1",
                  .before_mlp = "ln_2",
                  .attention = "attn",
                  .qkv = "c_attn",
                  .output = "c_proj",
                  .up = "c_fc",
                  .down = "c_proj"},
        .keys = keys_of_gpt2(),
        .other_names = {{"hidden_size", "n_embd"},
                        {"max_position_embeddings", "n_positions"},
                        {"num_attention_heads", "n_head"},
                        {"num_hidden_layers", "n_layer"}},
        .own_keys = {"n_inner"},
        .read = read_gpt2,
        .write = write_gpt2,
        .files = files_of_gpt2,
        .complete = complete_gpt2,
        .chosen_parts = true,
        .presets = {{"gpt2-tiny", "",
                     R"({"n_layer": 4, "n_head": 4, "n_embd": 128, "vocab_size": 512, "n_positions": 256})"},
                    {"gpt2-124m", "gpt2", R"({"n_layer": 12, "n_head": 12, "n_embd": 768})"},
                    {"gpt2-355m", "gpt2-medium", R"({"n_layer": 24, "n_head": 16, "n_embd": 1024})"},
                    {"gpt2-774m", "gpt2-large", R"({"n_layer": 36, "n_head": 20, "n_embd": 1280})"},
                    {"gpt2-1558m", "gpt2-xl", R"({"n_layer": 48, "n_head": 25, "n_embd": 1600})"}}};
    return row;
}

}  // namespace mantissa::nn
