#include "mantissa/nn/models/gpt2.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "mantissa/base/error.h"
#include "mantissa/formats/hf_gpt2.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/decoder/family.h"
#include "mantissa/nn/models/max_sizes.h"

namespace mantissa::inline v0::nn {

std::int64_t Gpt2Config::parameters() const { return decoder_of(*this).parameters(); }
double Gpt2Config::flops_per_token(std::int64_t sequence) const {
    return decoder_of(*this).flops_per_token(sequence);
}

namespace {

/// gpt2-tiny is ours, for tests and first steps: a few seconds of training on bytes or a small vocabulary.
const std::array<Gpt2Config, 5> configs = {{
    {.name = "gpt2-tiny", .layers = 4, .heads = 4, .channels = 128, .vocabulary = 512, .context = 256},
    {.name = "gpt2-124m", .layers = 12, .heads = 12, .channels = 768},
    {.name = "gpt2-355m", .layers = 24, .heads = 16, .channels = 1024},
    {.name = "gpt2-774m", .layers = 36, .heads = 20, .channels = 1280},
    {.name = "gpt2-1558m", .layers = 48, .heads = 25, .channels = 1600},
}};

struct Alias {
    std::string_view name, config;
};
constexpr std::array<Alias, 4> aliases = {{{"gpt2", "gpt2-124m"},
                                           {"gpt2-medium", "gpt2-355m"},
                                           {"gpt2-large", "gpt2-774m"},
                                           {"gpt2-xl", "gpt2-1558m"}}};

const Gpt2Config* find(std::string_view name) {
    for (const Alias& alias : aliases)
        if (alias.name == name) name = alias.config;
    for (const Gpt2Config& config : configs)
        if (config.name == name) return &config;
    return nullptr;
}

}  // namespace

bool is_gpt2(std::string_view name) { return find(name) != nullptr; }

Gpt2Config gpt2_config(std::string_view name) {
    if (const Gpt2Config* config = find(name)) return *config;
    throw UserError(fmt::format("there is no model '{}'; there are {}", name, fmt::join(gpt2_names(), ", ")));
}

std::vector<std::string> gpt2_names() {
    std::vector<std::string> names;
    for (const Gpt2Config& config : configs) names.push_back(config.name);
    return names;
}

void validate(const Gpt2Config& config) {
    require_between("layers", config.layers, max_layers);
    for (const auto& [what, value] : {std::pair{"heads", config.heads},
                                      {"channels", config.channels},
                                      {"vocabulary", config.vocabulary},
                                      {"context", config.context}})
        require_between(what, value, max_of_others);
    if (config.channels % config.heads != 0)
        throw UserError(
            fmt::format("{} channels cannot be shared by {} heads", config.channels, config.heads));
    if (!(config.dropout >= 0 && config.dropout < 1))
        throw UserError(fmt::format("dropout must lie in [0, 1), got {}", config.dropout));
}

Gpt2Config with_sizes(Gpt2Config config, const ModelSizes& sizes) {
    Gpt2Config other = config;
    other.layers = sizes.layers.value_or(config.layers);
    other.heads = sizes.heads.value_or(config.heads);
    other.channels = sizes.channels.value_or(config.channels);
    other.vocabulary = sizes.vocabulary.value_or(config.vocabulary);
    other.context = sizes.context.value_or(config.context);
    other.dropout = sizes.dropout.value_or(config.dropout);
    other.bias = sizes.bias.value_or(config.bias);
    validate(other);
    // Dropout has no effect once the model was trained.
    config.dropout = other.dropout;
    if (other != config) other.name = fmt::format("gpt2-{}x{}", other.layers, other.channels);
    return other;
}

const DecoderFamily& gpt2_family() {
    static const DecoderFamily row = {.model_type = "gpt2",
                                      .architecture = "GPT2LMHeadModel",
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
                                      .files = [](const DecoderConfig& config) {
                                          const Decoder& parts = config.parts;
                                          WeightFiles files = hf_gpt2_files();
                                          files.texts["config.json"] =
                                              hf_gpt2_config({.layers = parts.layers,
                                                              .channels = parts.channels,
                                                              .context = parts.context,
                                                              .vocabulary = parts.vocabulary,
                                                              .bias = parts.bias_norm},
                                                             parts.heads, parts.dropout);
                                          return files;
                                      }};
    return row;
}

DecoderConfig decoder_of(const Gpt2Config& config) {
    return {.name = config.name,
            .parts = {.layers = config.layers,
                      .heads = config.heads,
                      .key_heads = config.heads,
                      .head_size = config.heads > 0 ? config.head_size() : 0,
                      .channels = config.channels,
                      .hidden = 4 * config.channels,
                      .vocabulary = config.vocabulary,
                      .context = config.context,
                      .tied = true,
                      .learned_positions = true,
                      .layer_norms = true,
                      .bias_qkv = config.bias,
                      .bias_output = config.bias,
                      .bias_mlp = config.bias,
                      .bias_norm = config.bias,
                      .activation = Activation::gelu_tanh,
                      .gated = false,
                      .dropout = config.dropout},
            .family = &gpt2_family()};
}

Tensor gpt2_logits(const Gpt2Config& config, Tensor tokens, const Mode& mode, const DocumentPlaces& places) {
    validate(config);
    return decoder_logits(decoder_of(config), tokens, mode, places);
}

Tensor gpt2_next_logits(const Gpt2Config& config, Tensor tokens, Tensor positions, DType kept) {
    validate(config);
    return decoder_next_logits(decoder_of(config), tokens, positions, kept);
}

Tensor gpt2_loss(const Gpt2Config& config, Tensor tokens, Tensor targets, const Mode& mode) {
    const Tensor logits = gpt2_logits(config, tokens, mode);
    const OriginScope scope(tokens.graph(), "loss");
    return loss_of_text(logits, targets, mode);
}

Model gpt2_model(const Gpt2Config& config, std::int64_t sequence, Documents documents) {
    validate(config);
    return decoder_model(decoder_of(config), sequence, documents);
}

LanguageModel gpt2_language_model(const Gpt2Config& config) {
    validate(config);
    return decoder_language_model(decoder_of(config));
}

}  // namespace mantissa::nn
