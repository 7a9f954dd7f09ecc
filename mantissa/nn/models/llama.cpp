#include "mantissa/nn/models/llama.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <optional>

#include "mantissa/base/error.h"
#include "mantissa/formats/weight_files.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/layers.h"

namespace mantissa::inline v0::nn {

std::vector<double> rotary_frequencies(const LlamaSizes& sizes) {
    const LlamaRotary& rotary = sizes.rotary;
    const auto factor = static_cast<float>(rotary.factor);
    const auto original = static_cast<float>(rotary.original_context);
    const auto low = static_cast<float>(rotary.low_frequency_factor),
               high = static_cast<float>(rotary.high_frequency_factor);
    std::vector<double> frequencies;
    for (std::int64_t i = 0; i < sizes.head_size; i += 2) {
        const float share = static_cast<float>(i) / static_cast<float>(sizes.head_size);
        float frequency = 1.0f / std::pow(static_cast<float>(rotary.theta), share);
        if (rotary.kind == LlamaRotary::Kind::linear) frequency /= factor;
        if (rotary.kind == LlamaRotary::Kind::llama3) {
            const float turns = original * frequency / (2.0f * std::numbers::pi_v<float>);
            const float kept = std::clamp((turns - low) / (high - low), 0.0f, 1.0f);
            frequency = (1.0f - kept) * frequency / factor + kept * frequency;
        }
        frequencies.push_back(static_cast<double>(frequency));
    }
    return frequencies;
}

namespace {

/// The state of one forward pass through the blocks.
class Llama {
  public:
    Llama(const LlamaConfig& config, Graph& graph) : sizes_(config.sizes), graph_(graph) {}

    Tensor logits(Tensor tokens, const DocumentPlaces& places) {
        const std::int64_t B = tokens.dim(0), T = tokens.dim(1);
        visible_ = less_equal(iota(graph_, {T, T}, 1), iota(graph_, {T, T}, 0));
        if (sizes_.window > 0 && sizes_.window < T) {
            const Tensor keys = iota(graph_, {T, T}, 1), queries = iota(graph_, {T, T}, 0);
            visible_ = logical_and(visible_, less(queries - keys, whole(sizes_.window)));
        }
        if (places) visible_ = logical_and(visible_, in_one_document(places.documents));
        const Tensor positions = places ? places.positions : iota(graph_, {T}, 0);
        const Tensor x = body(tokens, positions, [](Tensor all) { return all; });
        return reshape(scores(reshape(x, {-1, sizes_.channels}), {}), {B, T, sizes_.vocabulary});
    }

    Tensor next_logits(Tensor tokens, Tensor positions, DType kept) {
        const std::int64_t T = tokens.dim(1);
        kept_.emplace(positions, sizes_.context, kept);
        const Tensor x = body(tokens, positions, [&](Tensor all) { return slice(all, 1, T - 1, T); });
        // Scores are FP32, as they are summed, under every policy: tokens are drawn from them.
        return scores(reshape(x, {-1, sizes_.channels}), DType::f32);
    }

  private:
    /// The last norm's output that `wanted` takes, for the tokens [B, T] at these positions i32 [T], or [B,
    /// T].
    Tensor body(Tensor tokens, Tensor positions, const std::function<Tensor(Tensor)>& wanted) {
        const OriginScope scope(graph_, "model");
        {
            const OriginScope of_table(graph_, "embed_tokens");
            embedding_ = parameter(graph_, "weight", {sizes_.vocabulary, sizes_.channels}, normal(0.02));
        }
        turn(positions);
        Tensor x = embedding(embedding_, tokens);  // [B, T, C]
        for (std::int64_t layer = 0; layer < sizes_.layers; ++layer) {
            const OriginScope of_layer(graph_, fmt::format("layers.{}", layer));
            x = x + attention(norm(x, "input_layernorm"));
            x = x + mlp(norm(x, "post_attention_layernorm"));
        }
        return norm(wanted(x), "norm");
    }

    /// [rows, C] -> [rows, V].
    Tensor scores(Tensor x, std::optional<DType> written) {
        const OriginScope scope(graph_, "lm_head");
        const Tensor weight =
            sizes_.tied ? embedding_
                        : parameter(graph_, "weight", {sizes_.vocabulary, sizes_.channels}, normal(0.02));
        Attributes attributes{{"transpose_a", false}, {"transpose_b", true}};
        if (written) attributes = attributes.with("output", *written);
        return call(graph_, "matmul", std::vector{x, weight}, attributes)[0];
    }

    /// Tables of cosines and sines [positions, D/2], for all layers.
    void turn(Tensor positions) {
        const OriginScope scope(graph_, "rotary_emb");
        const std::int64_t half = sizes_.head_size / 2;
        const Tensor frequencies = literal(graph_, rotary_frequencies(sizes_), DType::f32, {half});
        const Tensor angles = reshape(cast(positions, DType::f32), {-1, 1}) * frequencies;
        cosine_ = cos(angles);
        sine_ = sin(angles);
    }

    Tensor whole(std::int64_t number) const {
        return constant(graph_, static_cast<double>(number), DType::i32);
    }

    static Initializer normal(double standard_deviation) {
        return {.kind = Initializer::Kind::normal, .mean = 0, .standard_deviation = standard_deviation};
    }

    static LinearOptions into(std::int64_t outputs) { return {.outputs = outputs, .bias = false}; }

    /// Onto the residual stream: 2 L of these are added up, so each starts smaller by sqrt(2 L).
    LinearOptions projection() const {
        return {.outputs = sizes_.channels,
                .standard_deviation = 0.02 / std::sqrt(2.0 * static_cast<double>(sizes_.layers)),
                .bias = false};
    }

    Tensor norm(Tensor x, std::string_view name) const { return rms_norm(x, name, sizes_.epsilon); }

    Tensor attention(Tensor x) {
        const OriginScope scope(graph_, "self_attn");
        const std::int64_t B = x.dim(0), T = x.dim(1), H = sizes_.heads, D = sizes_.head_size;
        const auto heads = [&](const char* name, std::int64_t count) {
            return reshape(linear(x, name, into(count * D)), {B, T, count, D});
        };
        const auto head_major = [](Tensor part) { return transpose(part, {0, 2, 1, 3}); };
        const Tensor q = head_major(turned(heads("q_proj", H)));
        const Tensor k = head_major(turned(heads("k_proj", sizes_.key_heads)));
        const Tensor v = head_major(heads("v_proj", sizes_.key_heads));
        const double scale = 1.0 / std::sqrt(static_cast<double>(D));
        const Tensor y = head_major(kept_ ? kept_->attention(q, k, v, scale, sizes_.window)
                                          : whole_attention(q, k, v, scale));
        return linear(reshape(y, {B, T, H * D}), "o_proj", projection());
    }

    /// [B, T, H, D]. Where sequences stand at positions of their own, all tokens are one sequence for it.
    Tensor turned(Tensor x) const {
        if (cosine_.dim(0) == x.dim(1)) return rotary(x, cosine_, sine_);
        const Shape shape = x.shape();
        return reshape(rotary(reshape(x, {1, -1, shape[2], shape[3]}), cosine_, sine_), shape);
    }

    /// [B, G, T, D] -> [B, H, T, D]: heads of queries in a row read the same keys.
    Tensor repeated(Tensor x) const {
        const std::int64_t B = x.dim(0), G = x.dim(1), T = x.dim(2), D = x.dim(3), H = sizes_.heads;
        if (G == H) return x;
        return reshape(broadcast_to(reshape(x, {B, G, 1, T, D}), {B, G, H / G, T, D}), {B, H, T, D});
    }

    Tensor whole_attention(Tensor q, Tensor k, Tensor v, double scale) {
        const Tensor scores = matmul(q, repeated(k), {.transpose_b = true}) * scale;
        const Tensor hidden = constant(graph_, -std::numeric_limits<double>::infinity());
        return matmul(softmax(select(visible_, scores, hidden)), repeated(v));
    }

    Tensor mlp(Tensor x) {
        const OriginScope scope(graph_, "mlp");
        const Tensor gate = linear(x, "gate_proj", into(sizes_.hidden));  // [B, T, F]
        const Tensor up = linear(x, "up_proj", into(sizes_.hidden));
        return linear(swish(gate) * up, "down_proj", projection());
    }

    const LlamaSizes& sizes_;
    Graph& graph_;
    Tensor embedding_;              // [V, C]
    Tensor cosine_, sine_;          // [T, D/2], or [B T, D/2]
    Tensor visible_;                // bool [T, T], [B, 1, T, T]: whether query (row) sees key (column)
    std::optional<KeyCache> kept_;  // where text is generated
};

void require_fit(const LlamaConfig& config, std::int64_t sequence) {
    if (sequence > config.sizes.context)
        throw UserError(fmt::format("{} has a context of {} tokens, a sequence of {} does not fit",
                                    config.name, config.sizes.context, sequence));
}

void validate(const LlamaConfig& config, const Tensor& tokens) {
    if (tokens.rank() != 2)
        throw UserError(fmt::format("tokens must be [B, T], got {}", tokens.type().text()));
    nn::validate(config);
    require_fit(config, tokens.dim(1));
}

/// Facts that must be equal to resume. Angles are in it by their settings.
Configuration configuration_of(const LlamaSizes& sizes, std::int64_t sequence, Documents documents) {
    const LlamaRotary& rotary = sizes.rotary;
    Configuration configuration = {{"layers", sizes.layers},         {"heads", sizes.heads},
                                   {"key_heads", sizes.key_heads},   {"head_size", sizes.head_size},
                                   {"channels", sizes.channels},     {"hidden", sizes.hidden},
                                   {"vocabulary", sizes.vocabulary}, {"context", sizes.context},
                                   {"epsilon", sizes.epsilon},       {"tied", sizes.tied},
                                   {"rotary_theta", rotary.theta}};
    if (rotary.kind != LlamaRotary::Kind::plain) {
        const bool is_linear = rotary.kind == LlamaRotary::Kind::linear;
        configuration.push_back({"rotary_kind", std::string(is_linear ? "linear" : "llama3")});
        configuration.push_back({"rotary_factor", rotary.factor});
    }
    if (rotary.kind == LlamaRotary::Kind::llama3) {
        configuration.push_back({"rotary_low_frequency_factor", rotary.low_frequency_factor});
        configuration.push_back({"rotary_high_frequency_factor", rotary.high_frequency_factor});
        configuration.push_back({"rotary_original_context", rotary.original_context});
    }
    if (sizes.window > 0) configuration.push_back({"window", sizes.window});
    configuration.push_back({"sequence", sequence});
    add_to(configuration, documents);
    return configuration;
}

}  // namespace

Tensor llama_logits(const LlamaConfig& config, Tensor tokens, const DocumentPlaces& places) {
    validate(config, tokens);
    return Llama(config, tokens.graph()).logits(tokens, places);
}

Tensor llama_next_logits(const LlamaConfig& config, Tensor tokens, Tensor positions, DType kept) {
    validate(config, tokens);
    return Llama(config, tokens.graph()).next_logits(tokens, positions, kept);
}

namespace {

Tensor llama_loss_of(const LlamaConfig& config, Documents documents, std::span<const Tensor> inputs,
                     const Mode& mode) {
    const bool packed = documents == Documents::packed;
    const DocumentPlaces places = packed ? packed_inputs(inputs).places : DocumentPlaces{};
    const Tensor logits = llama_logits(config, inputs[0], places);
    const OriginScope scope(logits.graph(), "loss");
    return packed ? loss_of_documents(logits, packed_inputs(inputs)) : loss_of_text(logits, inputs[1], mode);
}

}  // namespace

Model llama_model(const LlamaConfig& config, std::int64_t sequence, Documents documents) {
    validate(config);
    require_fit(config, sequence);
    return {.name = config.name,
            .unit = "tokens",
            .units_per_example = sequence,
            .inputs = text_inputs(sequence, documents),
            .loss = [config, documents](
                        Graph&, std::span<const Tensor> inputs,
                        const Mode& mode) { return llama_loss_of(config, documents, inputs, mode); },
            .configuration = configuration_of(config.sizes, sequence, documents),
            .files = std::make_shared<const WeightFiles>(hf_llama_files(config.sizes)),
            .flops_per_example = config.flops_per_token(sequence) * static_cast<double>(sequence)};
}

LanguageModel llama_language_model(const LlamaConfig& config) {
    return {
        .name = config.name,
        .vocabulary = config.sizes.vocabulary,
        .context = config.sizes.context,
        .reach = config.sizes.window > 0 ? config.sizes.window : config.sizes.context,
        .parameters = config.parameters(),
        .on_sequences = [config](std::int64_t sequence) { return llama_model(config, sequence); },
        .on_packed_documents =
            [config](std::int64_t sequence) { return llama_model(config, sequence, Documents::packed); },
        .next_logits = [config](Tensor tokens, Tensor positions,
                                DType kept) { return llama_next_logits(config, tokens, positions, kept); }};
}

}  // namespace mantissa::nn
