// LLaMA's sizes: presets, other sizes of them, and those of a directory of Hugging Face's library.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/nn/models/llama.h"
#include "mantissa/nn/models/max_sizes.h"

namespace mantissa::inline v0::nn {

std::int64_t LlamaConfig::parameters() const {
    const std::int64_t C = sizes.channels, D = sizes.head_size;
    const std::int64_t attention = 2 * sizes.heads * D * C + 2 * sizes.key_heads * D * C;
    const std::int64_t layer = attention + 3 * C * sizes.hidden + 2 * C;
    return (sizes.tied ? 1 : 2) * sizes.vocabulary * C + sizes.layers * layer + C;
}

double LlamaConfig::flops_per_token(std::int64_t sequence) const {
    const std::int64_t looked_up = sizes.tied ? 0 : sizes.vocabulary * sizes.channels;
    // Twice what a token sees on average, beside the ends.
    std::int64_t seen = sequence;
    if (sizes.window > 0 && sizes.window < sequence)
        seen = 2 * sizes.window - sizes.window * sizes.window / sequence;
    const std::int64_t attention = sizes.layers * sizes.heads * sizes.head_size * seen;
    return 6.0 * static_cast<double>(parameters() - looked_up) + 6.0 * static_cast<double>(attention);
}

namespace {

LlamaConfig preset(std::string name, LlamaSizes sizes) {
    sizes.head_size = sizes.channels / sizes.heads;
    return {.name = std::move(name), .sizes = sizes};
}

/// llama-tiny is ours, for tests and first steps. The next three are those of Karpathy's llama2.c, whose
/// models tell stories; then TinyLlama's (Zhang et al. 2024). mistral-tiny is ours, too.
const std::array<LlamaConfig, 6>& llama_configs() {
    static const std::array<LlamaConfig, 6> all = {{
        preset("llama-tiny", {.layers = 4,
                              .heads = 4,
                              .key_heads = 2,
                              .channels = 128,
                              .hidden = 352,
                              .vocabulary = 512,
                              .context = 256,
                              .tied = true}),
        preset("llama-15m", {.layers = 6,
                             .heads = 6,
                             .key_heads = 6,
                             .channels = 288,
                             .hidden = 768,
                             .context = 256,
                             .tied = true}),
        preset("llama-42m", {.layers = 8,
                             .heads = 8,
                             .key_heads = 8,
                             .channels = 512,
                             .hidden = 1376,
                             .context = 1024,
                             .tied = true}),
        preset("llama-110m", {.layers = 12,
                              .heads = 12,
                              .key_heads = 12,
                              .channels = 768,
                              .hidden = 2048,
                              .context = 1024,
                              .tied = true}),
        preset(
            "llama-1100m",
            {.layers = 22, .heads = 32, .key_heads = 4, .channels = 2048, .hidden = 5632, .context = 2048}),
        preset("mistral-tiny", {.layers = 4,
                                .heads = 4,
                                .key_heads = 2,
                                .channels = 128,
                                .hidden = 352,
                                .vocabulary = 512,
                                .context = 256,
                                .window = 64}),
    }};
    return all;
}

struct LlamaAlias {
    std::string_view name, config;
};
constexpr std::array<LlamaAlias, 4> llama_aliases = {{{"stories15m", "llama-15m"},
                                                      {"stories42m", "llama-42m"},
                                                      {"stories110m", "llama-110m"},
                                                      {"tinyllama", "llama-1100m"}}};

const LlamaConfig* find_llama(std::string_view name) {
    for (const LlamaAlias& alias : llama_aliases)
        if (alias.name == name) name = alias.config;
    for (const LlamaConfig& config : llama_configs())
        if (config.name == name) return &config;
    return nullptr;
}

}  // namespace

bool is_llama(std::string_view name) { return find_llama(name) != nullptr; }

LlamaConfig llama_config(std::string_view name) {
    if (const LlamaConfig* config = find_llama(name)) return *config;
    throw UserError(
        fmt::format("there is no model '{}'; there are {}", name, fmt::join(llama_names(), ", ")));
}

std::vector<std::string> llama_names() {
    std::vector<std::string> names;
    for (const LlamaConfig& config : llama_configs()) names.push_back(config.name);
    return names;
}

namespace {

/// Angles are computed for positions below this; numerics/elementary_body.h.
constexpr std::int64_t max_positions = std::int64_t{1} << 20;

}  // namespace

void validate(const LlamaConfig& config) {
    const LlamaSizes& sizes = config.sizes;
    require_between("layers", sizes.layers, max_layers);
    for (const auto& [what, value] : {std::pair{"channels", sizes.channels},
                                      {"heads", sizes.heads},
                                      {"heads of keys", sizes.key_heads},
                                      {"head size", sizes.head_size},
                                      {"hidden channels", sizes.hidden},
                                      {"vocabulary", sizes.vocabulary}})
        require_between(what, value, max_of_others);
    require_between("context", sizes.context, max_positions);
    if (sizes.window < 0) throw UserError(fmt::format("a window of {} tokens is none", sizes.window));
    if (sizes.heads % sizes.key_heads != 0)
        throw UserError(fmt::format("{} heads of queries cannot share {} heads of keys and values",
                                    sizes.heads, sizes.key_heads));
    if (sizes.head_size % 2 != 0)
        throw UserError(fmt::format("heads are turned in pairs of elements, and {} is odd", sizes.head_size));
}

namespace {

/// In proportion to the channels, up to a multiple of 32 as llama2.c rounds it.
std::int64_t hidden_of(const LlamaSizes& sizes, std::int64_t channels) {
    return align_up(sizes.hidden * channels / sizes.channels, std::int64_t{32});
}

}  // namespace

LlamaConfig with_sizes(LlamaConfig config, const ModelSizes& given) {
    if (given.dropout.value_or(0) != 0)
        throw UserError(fmt::format("{}: has no dropout, got {}", config.name, *given.dropout));
    if (given.bias.value_or(false)) throw UserError(fmt::format("{}: has no biases", config.name));
    LlamaConfig other = config;
    LlamaSizes& sizes = other.sizes;
    sizes.layers = given.layers.value_or(sizes.layers);
    sizes.context = given.context.value_or(sizes.context);
    sizes.vocabulary = given.vocabulary.value_or(sizes.vocabulary);
    if (given.channels && *given.channels > 0 && *given.channels <= max_of_others) {
        sizes.hidden = hidden_of(sizes, *given.channels);
        sizes.channels = *given.channels;
    } else if (given.channels) {
        sizes.channels = *given.channels;
    }
    if (given.heads) {
        // As many heads of queries to one of keys, where that comes out even.
        const std::int64_t group = sizes.heads / sizes.key_heads;
        sizes.key_heads = *given.heads % group == 0 ? *given.heads / group : *given.heads;
        sizes.heads = *given.heads;
    }
    if (given.channels || given.heads) {
        if (sizes.heads < 1 || sizes.channels % sizes.heads != 0)
            throw UserError(
                fmt::format("{} channels cannot be shared by {} heads", sizes.channels, sizes.heads));
        sizes.head_size = sizes.channels / sizes.heads;
    }
    validate(other);
    if (other != config)
        other.name =
            fmt::format("{}-{}x{}", sizes.window > 0 ? "mistral" : "llama", sizes.layers, sizes.channels);
    return other;
}

LlamaConfig llama_config_of(const std::filesystem::path& directory) {
    const std::filesystem::path path = directory / "config.json";
    LlamaConfig config{.name = directory.filename().string(),
                       .sizes = read_hf_llama_config(MappedFile(path).text(), path.string())};
    for (const LlamaConfig& known : llama_configs())
        if (known.sizes == config.sizes) return known;
    try {
        validate(config);
    } catch (const UserError& error) {
        throw UserError(fmt::format("{}: {}", path.string(), error.what()));
    }
    return config;
}

}  // namespace mantissa::nn
