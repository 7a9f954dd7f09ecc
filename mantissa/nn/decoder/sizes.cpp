// Sizes of a decoder: presets, changed sizes, sizes in a directory, and numbers derived from them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/formats/strict_json.h"
#include "mantissa/nn/decoder/family.h"

namespace mantissa::inline v0::nn {

namespace {

/// Limits that keep byte counts within range.
constexpr std::int64_t max_layers = 1000, max_of_others = std::int64_t{1} << 20;

/// Throws UserError, naming the size, unless the value lies between 1 and `most`.
void require_between(const char* what, std::int64_t value, std::int64_t most) {
    if (value < 1 || value > most)
        throw UserError(std::string("a model's ") + what + " must be between 1 and " + std::to_string(most) +
                        ", got " + std::to_string(value));
}

/// Elements of a linear layer.
std::int64_t linear_elements(std::int64_t inputs, std::int64_t outputs, bool bias) {
    return inputs * outputs + (bias ? outputs : 0);
}

std::int64_t norm_elements(const Decoder& parts, std::int64_t channels) {
    return parts.layer_norms && parts.bias_norm ? 2 * channels : channels;
}

}  // namespace

std::int64_t DecoderConfig::parameters() const {
    const DecoderNames& names = family->names;
    const std::int64_t C = parts.channels, D = parts.head_size, H = parts.heads, G = parts.key_heads;
    std::int64_t layer = linear_elements(C, (H + 2 * G) * D, parts.bias_qkv) +
                         linear_elements(H * D, C, parts.bias_output) +
                         linear_elements(C, (parts.gated ? 2 : 1) * parts.hidden, parts.bias_mlp) +
                         linear_elements(parts.hidden, C, parts.bias_mlp);
    for (const std::string_view norm :
         {names.before_attention, names.after_attention, names.before_mlp, names.after_mlp})
        if (!norm.empty()) layer += norm_elements(parts, C);
    if (parts.qk_norm == QkNorm::head) layer += 2 * norm_elements(parts, D);
    if (parts.qk_norm == QkNorm::all) layer += norm_elements(parts, H * D) + norm_elements(parts, G * D);
    const std::int64_t positions = parts.learned_positions ? parts.context + parts.first_position : 0;
    return ((parts.tied ? 1 : 2) * parts.vocabulary + positions) * C +
           (parts.bias_head ? parts.vocabulary : 0) + parts.layers * layer + norm_elements(parts, C);
}

double DecoderConfig::flops_per_token(std::int64_t sequence) const {
    const std::int64_t looked_up = parts.tied ? 0 : parts.vocabulary * parts.channels;
    std::int64_t attention = 0;
    for (std::int64_t layer = 0; layer < parts.layers; ++layer) {
        // Twice the keys that a token sees on average, apart from the ends.
        std::int64_t seen = sequence;
        if (parts.has_window(layer) && parts.window < sequence)
            seen = 2 * parts.window - parts.window * parts.window / sequence;
        attention += parts.heads * parts.head_size * seen;
    }
    return 6.0 * static_cast<double>(parameters() - looked_up) + 6.0 * static_cast<double>(attention);
}

namespace {

/// Angles are computed for positions below this; numerics/elementary_body.h.
constexpr std::int64_t max_positions = std::int64_t{1} << 20;

struct NamedPreset {
    std::string_view alias;
    DecoderConfig config;
};

const std::vector<NamedPreset>& presets() {
    static const std::vector<NamedPreset> all = [] {
        std::vector<NamedPreset> made;
        for (const DecoderFamily* family : decoder_families())
            for (const DecoderPreset& preset : family->presets) {
                nlohmann::json json = nlohmann::json::parse(preset.config);
                json["model_type"] = family->model_type;
                made.push_back({preset.alias, decoder_config_from(json, std::string(preset.name))});
                made.back().config.name = preset.name;
            }
        return made;
    }();
    return all;
}

const DecoderConfig* find_preset(std::string_view name) {
    for (const NamedPreset& preset : presets())
        if (preset.config.name == name || (!preset.alias.empty() && preset.alias == name))
            return &preset.config;
    return nullptr;
}

}  // namespace

bool is_decoder(std::string_view name) { return find_preset(name) != nullptr; }

DecoderConfig decoder_config(std::string_view name) {
    if (const DecoderConfig* config = find_preset(name)) return *config;
    throw UserError(
        fmt::format("there is no model '{}'; there are {}", name, fmt::join(decoder_names(), ", ")));
}

std::vector<std::string> decoder_names() {
    std::vector<std::string> names;
    for (const NamedPreset& preset : presets()) names.push_back(preset.config.name);
    return names;
}

void validate(const DecoderConfig& config) {
    const Decoder& parts = config.parts;
    require_between("layers", parts.layers, max_layers);
    for (const auto& [what, value] : {std::pair{"channels", parts.channels},
                                      {"heads", parts.heads},
                                      {"heads of keys", parts.key_heads},
                                      {"head size", parts.head_size},
                                      {"vocabulary", parts.vocabulary}})
        require_between(what, value, max_of_others);
    require_between("hidden channels", parts.hidden, 4 * max_of_others);
    require_between("context", parts.context, parts.learned_positions ? max_of_others : max_positions);
    if (parts.window < 0) throw UserError(fmt::format("a window of {} tokens is none", parts.window));
    if (parts.heads % parts.key_heads != 0)
        throw UserError(fmt::format("{} heads of queries cannot share {} heads of keys and values",
                                    parts.heads, parts.key_heads));
    if (!(parts.dropout >= 0 && parts.dropout < 1))
        throw UserError(fmt::format("dropout must lie in [0, 1), got {}", parts.dropout));
    if (parts.learned_positions) return;
    for (const Rotary& rotary : {parts.rotary, parts.rotary_of_windows.value_or(parts.rotary)})
        if (const std::int64_t turning = turning_elements(rotary, parts.head_size);
            turning % 2 != 0 || turning > parts.head_size || turning == 0)
            throw UserError(fmt::format("heads are turned in pairs of elements, and {} is {}", turning,
                                        turning % 2 != 0 ? "odd" : "no part of a head"));
}

namespace {

/// The feed-forward size, proportional to the channels; with a gate a multiple of 32, as in llama2.c.
std::int64_t hidden_of(const Decoder& parts, std::int64_t channels) {
    return align_up(parts.hidden * channels / parts.channels, std::int64_t{parts.gated ? 32 : 1});
}

/// The pattern of layers, repeated.
void fit_layers(std::vector<bool>& of_layers, std::int64_t layers) {
    if (of_layers.empty()) return;
    std::vector<bool> fitted;
    for (std::int64_t layer = 0; layer < layers; ++layer)
        fitted.push_back(of_layers[static_cast<std::size_t>(layer) % of_layers.size()]);
    of_layers = std::move(fitted);
}

}  // namespace

DecoderConfig with_sizes(DecoderConfig config, const ModelSizes& given) {
    const bool chosen = config.family->chosen_parts;
    if (given.dropout.value_or(0) != 0 && !chosen)
        throw UserError(fmt::format("{}: has no dropout, got {}", config.name, *given.dropout));
    DecoderConfig other = config;
    Decoder& parts = other.parts;
    const bool biases = parts.layer_norms || parts.bias_qkv || parts.bias_output || parts.bias_mlp;
    if (chosen) {
        // Dropout has no effect on a trained model, so another value does not change its name.
        config.parts.dropout = parts.dropout = given.dropout.value_or(parts.dropout);
        for (bool Decoder::*bias :
             {&Decoder::bias_qkv, &Decoder::bias_output, &Decoder::bias_mlp, &Decoder::bias_norm})
            parts.*bias = given.bias.value_or(parts.*bias);
    } else if (given.bias && *given.bias != biases)
        throw UserError(
            fmt::format("{}: has {}", config.name, biases ? "biases, as all of its family" : "no biases"));
    if (given.layers) {
        fit_layers(parts.windowed, *given.layers);
        fit_layers(parts.turned, *given.layers);
        parts.layers = *given.layers;
    }
    parts.context = given.context.value_or(parts.context);
    parts.vocabulary = given.vocabulary.value_or(parts.vocabulary);
    if (given.channels && *given.channels > 0 && *given.channels <= max_of_others) {
        parts.hidden = hidden_of(parts, *given.channels);
        parts.channels = *given.channels;
    } else if (given.channels) {
        parts.channels = *given.channels;
    }
    if (given.heads) {
        // Keeps the number of query heads per key head, if it divides.
        const std::int64_t group = parts.heads / parts.key_heads;
        parts.key_heads = *given.heads % group == 0 ? *given.heads / group : *given.heads;
        parts.heads = *given.heads;
    }
    if (given.channels || given.heads) {
        if (parts.heads < 1 || parts.channels % parts.heads != 0)
            throw UserError(
                fmt::format("{} channels cannot be shared by {} heads", parts.channels, parts.heads));
        parts.head_size = parts.channels / parts.heads;
    }
    validate(other);
    if (other != config)
        other.name = fmt::format("{}-{}x{}", config.family->model_type, parts.layers, parts.channels);
    return other;
}

DecoderConfig decoder_config_of(const std::filesystem::path& directory, std::span<const TensorView> weights,
                                const std::string& source) {
    const std::filesystem::path path = directory / "config.json";
    // Without a family in config.json, weights may be GPT-2's.
    const bool may_be_gpt2 = !weights.empty() && std::ranges::find(weights, "model.embed_tokens.weight",
                                                                   &TensorView::name) == weights.end();
    nlohmann::json root = nlohmann::json::object();
    if (std::filesystem::exists(path) || !may_be_gpt2)
        root = parse_strict_json(MappedFile(path).text(), path.string());
    if (may_be_gpt2 && root.is_object() && !root.contains("model_type"))
        root["model_type"] = gpt2_family().model_type;
    const DecoderFamily& family = family_in(root, path.string());
    take_own_names(root, family, path.string());
    if (family.complete && !weights.empty()) family.complete(root, weights, source, path.string());
    DecoderConfig config = decoder_config_from(std::move(root), path.string());
    config.name = directory.filename().string();
    for (const NamedPreset& known : presets())
        if (known.config.family == config.family && known.config.parts == config.parts) return known.config;
    try {
        validate(config);
    } catch (const UserError& error) {
        throw UserError(fmt::format("{}: {}", path.string(), error.what()));
    }
    return config;
}

namespace {

/// Scalars unchanged, lists and objects as text.
Setting setting_of(const std::string& name, const nlohmann::ordered_json& value) {
    if (value.is_boolean()) return {name, value.get<bool>()};
    if (value.is_number_integer()) return {name, value.get<std::int64_t>()};
    if (value.is_number()) return {name, value.get<double>()};
    return {name, value.is_string() ? value.get<std::string>() : value.dump()};
}

/// Names of these settings in LLaMA's, Mistral's and GPT-2's checkpoints since the first version.
Configuration first_settings(const DecoderConfig& config) {
    const Decoder& parts = config.parts;
    const Rotary& rotary = parts.rotary;
    Configuration settings = {{"layers", parts.layers},         {"heads", parts.heads},
                              {"key_heads", parts.key_heads},   {"head_size", parts.head_size},
                              {"channels", parts.channels},     {"hidden", parts.hidden},
                              {"vocabulary", parts.vocabulary}, {"context", parts.context},
                              {"epsilon", parts.epsilon},       {"tied", parts.tied},
                              {"rotary_theta", rotary.theta}};
    if (rotary.kind == Rotary::Kind::linear || rotary.kind == Rotary::Kind::llama3) {
        const bool is_linear = rotary.kind == Rotary::Kind::linear;
        settings.push_back({"rotary_kind", std::string(is_linear ? "linear" : "llama3")});
        settings.push_back({"rotary_factor", rotary.factor});
    }
    if (rotary.kind == Rotary::Kind::llama3) {
        settings.push_back({"rotary_low_frequency_factor", rotary.low_frequency_factor});
        settings.push_back({"rotary_high_frequency_factor", rotary.high_frequency_factor});
        settings.push_back({"rotary_original_context", rotary.original_context});
    }
    if (parts.window > 0) settings.push_back({"window", parts.window});
    return settings;
}

/// Whether first_settings describes the model completely.
bool is_of_the_first(const DecoderConfig& config) {
    Decoder rest = config.parts;
    const Rotary::Kind kind = rest.rotary.kind;
    if (kind != Rotary::Kind::plain && kind != Rotary::Kind::linear && kind != Rotary::Kind::llama3)
        return false;
    const Decoder first{.layers = rest.layers,
                        .heads = rest.heads,
                        .key_heads = rest.key_heads,
                        .head_size = rest.head_size,
                        .channels = rest.channels,
                        .hidden = rest.hidden,
                        .vocabulary = rest.vocabulary,
                        .context = rest.context,
                        .epsilon = rest.epsilon,
                        .rotary = rest.rotary,
                        .tied = rest.tied,
                        .window = rest.window};
    return rest == first && (config.family == &llama_family() || config.family->model_type == "mistral");
}

}  // namespace

Configuration decoder_configuration(const DecoderConfig& config, std::int64_t sequence, Documents documents) {
    const Decoder& parts = config.parts;
    Configuration settings;
    if (config.family == &gpt2_family()) {
        settings = {{"layers", parts.layers},     {"heads", parts.heads},
                    {"channels", parts.channels}, {"vocabulary", parts.vocabulary},
                    {"context", parts.context},   {"dropout", parts.dropout},
                    {"bias", parts.bias_norm}};
    } else if (is_of_the_first(config)) {
        settings = first_settings(config);
    } else {
        const auto json = nlohmann::ordered_json::parse(decoder_config_text(config));
        for (const auto& [name, value] : json.items())
            if (name != "architectures" && name != "torch_dtype" && !name.ends_with("_token_id"))
                settings.push_back(setting_of(name, value));
    }
    settings.push_back({"sequence", sequence});
    add_to(settings, documents);
    return settings;
}

}  // namespace mantissa::nn
