#include "mantissa/nn/models/gpt2.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "mantissa/base/error.h"
#include "mantissa/formats/hf_gpt2.h"
#include "mantissa/formats/weight_files.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/layers.h"
#include "mantissa/nn/models/max_sizes.h"

namespace mantissa::inline v0::nn {

std::int64_t Gpt2Config::parameters() const {
    const std::int64_t C = channels;
    const std::int64_t matrices = 3 * C * C + C * C + 4 * C * C + 4 * C * C;
    const std::int64_t biases = bias ? 3 * C + C + 4 * C + C : 0;
    const std::int64_t norm = bias ? 2 * C : C;
    return vocabulary * C + context * C + layers * (matrices + biases + 2 * norm) + norm;
}

double Gpt2Config::flops_per_token(std::int64_t sequence) const {
    return 6.0 * static_cast<double>(parameters()) + 6.0 * static_cast<double>(layers * channels * sequence);
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

/// The state of one forward pass through the blocks.
class Gpt2 {
  public:
    Gpt2(const Gpt2Config& config, Graph& graph, const Mode& mode)
        : config_(config), graph_(graph), mode_(mode) {}

    Tensor logits(Tensor tokens, const DocumentPlaces& places) {
        const std::int64_t B = tokens.dim(0), T = tokens.dim(1);
        make_tables();
        visible_ = less_equal(iota(graph_, {T, T}, 1), iota(graph_, {T, T}, 0));
        if (places) visible_ = logical_and(visible_, in_one_document(places.documents));
        const Tensor of_positions = places ? embedding(wpe_, places.positions) : slice(wpe_, 0, 0, T);
        const Tensor x = blocks(drop(embedding(wte_, tokens) + of_positions));
        return reshape(head(x), {B, T, config_.vocabulary});
    }

    Tensor next_logits(Tensor tokens, Tensor positions, DType kept) {
        const std::int64_t T = tokens.dim(1);
        make_tables();
        kept_.emplace(positions, config_.context, kept);
        const Tensor x = blocks(embedding(wte_, tokens) + embedding(wpe_, positions));
        const Tensor last = reshape(norm(slice(x, 1, T - 1, T), "ln_f"), {-1, config_.channels});
        const OriginScope scope(graph_, "lm_head");
        // Scores are FP32, as they are summed, under every policy: tokens are drawn from them.
        return call(graph_, "matmul", std::vector{last, wte_},
                    {{"transpose_a", false}, {"transpose_b", true}, {"output", DType::f32}})[0];
    }

  private:
    void make_tables() {
        wte_ = parameter(graph_, "wte.weight", {config_.vocabulary, config_.channels}, normal(0.02));
        wpe_ = parameter(graph_, "wpe.weight", {config_.context, config_.channels}, normal(0.02));
    }

    Tensor blocks(Tensor x) {
        for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
            const OriginScope scope(graph_, fmt::format("h.{}", layer));
            x = x + attention(norm(x, "ln_1"));
            x = x + mlp(norm(x, "ln_2"));
        }
        return x;  // [B, T, C]
    }

    /// [B, T, C] -> [B T, V].
    Tensor head(Tensor x) {
        x = reshape(norm(x, "ln_f"), {-1, config_.channels});
        const OriginScope scope(graph_, "lm_head");
        return matmul(x, wte_, {.transpose_b = true});
    }

    static Initializer normal(double standard_deviation) {
        return {.kind = Initializer::Kind::normal, .mean = 0, .standard_deviation = standard_deviation};
    }

    /// Into the layer: `times` its channels.
    LinearOptions expansion(std::int64_t times) const {
        return {.outputs = times * config_.channels, .bias = config_.bias};
    }

    /// Onto the residual stream: 2 L of these are added up, so each starts smaller by sqrt(2 L).
    LinearOptions projection() const {
        return {.outputs = config_.channels,
                .standard_deviation = 0.02 / std::sqrt(2.0 * static_cast<double>(config_.layers)),
                .bias = config_.bias};
    }

    Tensor norm(Tensor x, std::string_view name) const { return layer_norm(x, name, {.bias = config_.bias}); }

    Tensor drop(Tensor x) const { return dropout(x, config_.dropout, mode_); }

    Tensor attention(Tensor x) {
        const OriginScope scope(graph_, "attn");
        const std::int64_t B = x.dim(0), T = x.dim(1), H = config_.heads, D = config_.head_size();
        const Tensor qkv = linear(x, "c_attn", expansion(3));  // [B, T, 3 C]
        const auto parts = split(transpose(reshape(qkv, {B, T, 3, H, D}), {2, 0, 3, 1, 4}), 0, 3);
        const auto head_major = [&](const Tensor& part) { return reshape(part, {B, H, T, D}); };
        const double scale = 1.0 / std::sqrt(static_cast<double>(D));
        const Tensor q = head_major(parts[0]), k = head_major(parts[1]), v = head_major(parts[2]);
        const Tensor y = transpose(kept_ ? kept_->attention(q, k, v, scale) : whole_attention(q, k, v, scale),
                                   {0, 2, 1, 3});  // [B, T, H, D]
        return drop(linear(reshape(y, {B, T, config_.channels}), "c_proj", projection()));
    }

    Tensor whole_attention(Tensor q, Tensor k, Tensor v, double scale) {
        const Tensor scores = matmul(q, k, {.transpose_b = true}) * scale;
        const Tensor hidden = constant(graph_, -std::numeric_limits<double>::infinity());
        const Tensor weights = drop(softmax(select(visible_, scores, hidden)));  // [B, H, T, T]
        return matmul(weights, v);
    }

    Tensor mlp(Tensor x) {
        const OriginScope scope(graph_, "mlp");
        const Tensor hidden = gelu(linear(x, "c_fc", expansion(4)));  // [B, T, 4 C]
        return drop(linear(hidden, "c_proj", projection()));
    }

    const Gpt2Config& config_;
    Graph& graph_;
    const Mode& mode_;
    Tensor wte_, wpe_;              // [V, C], [context, C]
    Tensor visible_;                // bool [T, T], [B, 1, T, T]: whether query (row) sees key (column)
    std::optional<KeyCache> kept_;  // where text is generated
};

}  // namespace

namespace {

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

namespace {

void require_fit(const Gpt2Config& config, std::int64_t sequence) {
    if (sequence > config.context)
        throw UserError(fmt::format("{} has a context of {} tokens, a sequence of {} does not fit",
                                    config.name, config.context, sequence));
}

void validate(const Gpt2Config& config, const Tensor& tokens) {
    if (tokens.rank() != 2)
        throw UserError(fmt::format("tokens must be [B, T], got {}", tokens.type().text()));
    validate(config);
    require_fit(config, tokens.dim(1));
}

Gpt2Sizes sizes_of(const Gpt2Config& config) {
    return {.layers = config.layers,
            .channels = config.channels,
            .context = config.context,
            .vocabulary = config.vocabulary,
            .bias = config.bias};
}

}  // namespace

Tensor gpt2_logits(const Gpt2Config& config, Tensor tokens, const Mode& mode, const DocumentPlaces& places) {
    validate(config, tokens);
    return Gpt2(config, tokens.graph(), mode).logits(tokens, places);
}

Tensor gpt2_next_logits(const Gpt2Config& config, Tensor tokens, Tensor positions, DType kept) {
    validate(config, tokens);
    return Gpt2(config, tokens.graph(), {}).next_logits(tokens, positions, kept);
}

Tensor gpt2_loss(const Gpt2Config& config, Tensor tokens, Tensor targets, const Mode& mode) {
    const Tensor logits = gpt2_logits(config, tokens, mode);
    const OriginScope scope(tokens.graph(), "loss");
    return loss_of_text(logits, targets, mode);
}

namespace {

Tensor gpt2_loss_of(const Gpt2Config& config, Documents documents, std::span<const Tensor> inputs,
                    const Mode& mode) {
    if (documents == Documents::joined) return gpt2_loss(config, inputs[0], inputs[1], mode);
    const PackedInputs packed = packed_inputs(inputs);
    const Tensor logits = gpt2_logits(config, packed.tokens, mode, packed.places);
    const OriginScope scope(logits.graph(), "loss");
    return loss_of_documents(logits, packed);
}

Configuration configuration_of(const Gpt2Config& config, std::int64_t sequence, Documents documents) {
    Configuration configuration = {{"layers", config.layers},     {"heads", config.heads},
                                   {"channels", config.channels}, {"vocabulary", config.vocabulary},
                                   {"context", config.context},   {"dropout", config.dropout},
                                   {"bias", config.bias},         {"sequence", sequence}};
    add_to(configuration, documents);
    return configuration;
}

}  // namespace

Model gpt2_model(const Gpt2Config& config, std::int64_t sequence, Documents documents) {
    validate(config);
    require_fit(config, sequence);
    WeightFiles files = hf_gpt2_files();
    files.texts["config.json"] = hf_gpt2_config(sizes_of(config), config.heads, config.dropout);
    return {.name = config.name,
            .unit = "tokens",
            .units_per_example = sequence,
            .inputs = text_inputs(sequence, documents),
            .loss = [config, documents](
                        Graph&, std::span<const Tensor> inputs,
                        const Mode& mode) { return gpt2_loss_of(config, documents, inputs, mode); },
            .configuration = configuration_of(config, sequence, documents),
            .files = std::make_shared<const WeightFiles>(std::move(files)),
            .flops_per_example = config.flops_per_token(sequence) * static_cast<double>(sequence)};
}

LanguageModel gpt2_language_model(const Gpt2Config& config) {
    return {
        .name = config.name,
        .vocabulary = config.vocabulary,
        .context = config.context,
        .reach = config.context,
        .parameters = config.parameters(),
        .on_sequences = [config](std::int64_t sequence) { return gpt2_model(config, sequence); },
        .on_packed_documents =
            [config](std::int64_t sequence) { return gpt2_model(config, sequence, Documents::packed); },
        .next_logits = [config](Tensor tokens, Tensor positions,
                                DType kept) { return gpt2_next_logits(config, tokens, positions, kept); }};
}

}  // namespace mantissa::nn
