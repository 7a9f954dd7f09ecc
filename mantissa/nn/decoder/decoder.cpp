#include "mantissa/nn/decoder/decoder.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "mantissa/base/error.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/decoder/family.h"
#include "mantissa/nn/layers.h"

namespace mantissa::inline v0::nn {

double Decoder::scale() const {
    if (attention_multiplier > 0) return attention_multiplier;
    return 1.0 / std::sqrt(static_cast<double>(query_scalar > 0 ? query_scalar : head_size));
}

bool Decoder::has_window(std::int64_t layer) const {
    return window > 0 && (windowed.empty() || windowed[static_cast<std::size_t>(layer)]);
}

bool Decoder::turns(std::int64_t layer) const {
    return !learned_positions && (turned.empty() || turned[static_cast<std::size_t>(layer)]);
}

namespace {

Initializer normal_weights() {
    return {.kind = Initializer::Kind::normal, .mean = 0, .standard_deviation = 0.02};
}

Tensor activated(Tensor x, Activation activation) {
    switch (activation) {
        case Activation::silu:
            return swish(x);
        case Activation::gelu:
            return call1("erf_gelu", {x});
        case Activation::gelu_tanh:
            return gelu(x);
        case Activation::relu:
            return relu(x);
    }
    throw InternalError("an activation outside of its enumeration");
}

/// c tanh(x / c); x itself where there is no cap.
Tensor capped(Tensor x, double cap) { return cap > 0 ? tanh(x * (1 / cap)) * cap : x; }

/// Scope of the layers recorded while it lives; an empty name makes none.
class Under {
  public:
    Under(Graph& graph, std::string_view name) {
        if (!name.empty()) scope_.emplace(graph, name);
    }

  private:
    std::optional<OriginScope> scope_;
};

/// The state of one forward pass through the blocks.
class Pass {
  public:
    Pass(const DecoderConfig& config, Graph& graph, const Mode& mode)
        : parts_(config.parts), names_(config.family->names), graph_(graph), mode_(mode) {}

    Tensor logits(Tensor tokens, const DocumentPlaces& places) {
        const std::int64_t B = tokens.dim(0), T = tokens.dim(1);
        make_masks(T, places);
        Tensor positions;
        if (places || !parts_.learned_positions) positions = places ? places.positions : iota(graph_, {T}, 0);
        const Tensor x = body(tokens, positions, [](Tensor all) { return all; });
        return reshape(scores(reshape(x, {-1, parts_.channels}), {}), {B, T, parts_.vocabulary});
    }

    Tensor next_logits(Tensor tokens, Tensor positions, DType kept) {
        const std::int64_t T = tokens.dim(1);
        kept_.emplace(positions, parts_.context, kept);
        const Tensor x = body(tokens, positions, [&](Tensor all) { return slice(all, 1, T - 1, T); });
        // Scores are FP32, as accumulated, under every policy: tokens are drawn from them.
        return scores(reshape(x, {-1, parts_.channels}), DType::f32);
    }

  private:
    /// The tables of cosines and sines for layers with or without the window.
    struct Turn {
        Tensor cosine, sine;  // [T, d/2], or [B T, d/2]
    };

    void make_masks(std::int64_t T, const DocumentPlaces& places) {
        const Tensor causal = less_equal(iota(graph_, {T, T}, 1), iota(graph_, {T, T}, 0));
        const auto of_documents = [&](Tensor mask) {
            return places ? logical_and(mask, in_one_document(places.documents)) : mask;
        };
        bool all = false, some = false;
        for (std::int64_t layer = 0; layer < parts_.layers; ++layer) (windowed(layer, T) ? some : all) = true;
        if (some) {
            const Tensor keys = iota(graph_, {T, T}, 1), queries = iota(graph_, {T, T}, 0);
            const Tensor size = constant(graph_, static_cast<double>(parts_.window), DType::i32);
            visible_in_window_ = of_documents(logical_and(causal, less(queries - keys, size)));
        }
        if (all) visible_ = of_documents(causal);
    }

    bool windowed(std::int64_t layer, std::int64_t T) const {
        return parts_.has_window(layer) && parts_.window < T;
    }

    /// The last norm's output, restricted by `wanted`, for the tokens [B, T] at positions i32 [T] or [B, T].
    Tensor body(Tensor tokens, Tensor positions, const std::function<Tensor(Tensor)>& wanted) {
        const Under scope(graph_, names_.body);
        Tensor x = embedded(tokens, positions);  // [B, T, C]
        for (std::int64_t layer = 0; layer < parts_.layers; ++layer) {
            const OriginScope of_layer(graph_, fmt::format("{}.{}", names_.layers, layer));
            x = block(x, layer);
        }
        return norm(wanted(x), names_.last_norm);
    }

    Tensor table(std::string_view name, std::int64_t rows) const {
        const OriginScope scope(graph_, name);
        return parameter(graph_, "weight", {rows, parts_.channels}, normal_weights());
    }

    Tensor embedded(Tensor tokens, Tensor positions) {
        embedding_ = table(names_.embedding, parts_.vocabulary);
        if (parts_.learned_positions) {
            const std::int64_t first = parts_.first_position, T = tokens.dim(1);
            const Tensor of_positions = table(names_.positions, parts_.context + first);
            const Tensor rows =
                positions
                    ? embedding(of_positions, first > 0 ? positions + static_cast<double>(first) : positions)
                    : slice(of_positions, 0, first, first + T);
            return drop(scaled(embedding(embedding_, tokens)) + rows);
        }
        {
            const OriginScope scope(graph_, "rotary_emb");
            turn_ = turn(parts_.rotary, positions);
            if (parts_.rotary_of_windows) turn_of_windows_ = turn(*parts_.rotary_of_windows, positions);
        }
        return drop(scaled(embedding(embedding_, tokens)));
    }

    Tensor scaled(Tensor x) const {
        const double root = parts_.root_embedding ? std::sqrt(static_cast<double>(parts_.channels)) : 1.0;
        return times(x, root * parts_.embedding_multiplier);
    }

    static Tensor times(Tensor x, double factor) { return factor == 1 ? x : x * factor; }

    Tensor block(Tensor x, std::int64_t layer) {
        const auto residual = [&](Tensor part) { return times(part, parts_.residual_multiplier); };
        const Tensor read = norm(x, names_.before_attention);
        const Tensor attended = residual(norm(attention(read, layer), names_.after_attention));
        if (parts_.parallel)
            return x + attended +
                   residual(mlp(names_.before_mlp.empty() ? read : norm(x, names_.before_mlp)));
        x = x + attended;
        return x + residual(norm(mlp(norm(x, names_.before_mlp)), names_.after_mlp));
    }

    /// [rows, C] -> [rows, V].
    Tensor scores(Tensor x, std::optional<DType> written) {
        const OriginScope scope(graph_, names_.head);
        const auto untied = [&] {
            return parameter(graph_, "weight", {parts_.vocabulary, parts_.channels}, normal_weights());
        };
        const Tensor weight = parts_.tied ? embedding_ : untied();
        Attributes attributes{{"transpose_a", false}, {"transpose_b", true}};
        if (written) attributes = attributes.with("output", *written);
        Tensor logits = call(graph_, "matmul", std::vector{x, weight}, attributes)[0];
        if (parts_.bias_head)
            logits = logits +
                     parameter(graph_, "bias", {parts_.vocabulary}, {.kind = Initializer::Kind::constant});
        return capped(times(logits, 1 / parts_.logits_divisor), parts_.logits_cap);
    }

    Turn turn(const Rotary& rotary, Tensor positions) {
        const std::vector<double> of_pairs = rotary_frequencies(rotary, parts_.head_size);
        const Tensor frequencies = literal(graph_, of_pairs, DType::f32, {std::ssize(of_pairs)});
        const Tensor angles = reshape(cast(positions, DType::f32), {-1, 1}) * frequencies;
        const double scale = rotary_scale(rotary);
        return {.cosine = times(cos(angles), scale), .sine = times(sin(angles), scale)};
    }

    static LinearOptions into(std::int64_t outputs, bool bias) { return {.outputs = outputs, .bias = bias}; }

    /// A layer onto the residual stream: 2 L of them are summed, so each starts smaller by sqrt(2 L).
    LinearOptions projection(bool bias) const {
        return {.outputs = parts_.channels,
                .standard_deviation = 0.02 / std::sqrt(2.0 * static_cast<double>(parts_.layers)),
                .bias = bias};
    }

    /// A norm over the last axis; x itself if the family has none here.
    Tensor norm(Tensor x, std::string_view name) const {
        if (name.empty()) return x;
        if (parts_.layer_norms)
            return layer_norm(x, name, {.epsilon = parts_.epsilon, .bias = parts_.bias_norm});
        if (!parts_.one_plus) return rms_norm(x, name, parts_.epsilon);
        const OriginScope scope(graph_, name);
        const Tensor weight =
            parameter(graph_, "weight", {x.dim(-1)}, {.kind = Initializer::Kind::constant, .mean = 0});
        return ops::rms_norm(x, weight + 1.0, parts_.epsilon);
    }

    Tensor drop(Tensor x) const { return dropout(x, parts_.dropout, mode_); }

    struct Heads {
        Tensor q, k, v;  // [B, H, T, D], [B, G, T, D] twice
    };

    Tensor attention(Tensor x, std::int64_t layer) {
        const Under scope(graph_, names_.attention);
        const std::int64_t B = x.dim(0), T = x.dim(1);
        const auto [q, k, v] = heads_of(x, layer);
        const double scale = parts_.scale();
        const CachedAttentionOptions seen{.window = parts_.has_window(layer) ? parts_.window : 0,
                                          .cap = parts_.attention_cap};
        const Tensor y = kept_
                             ? kept_->attention(q, k, v, scale, seen)
                             : whole_attention({q, k, v}, windowed(layer, T) ? visible_in_window_ : visible_);
        const Tensor rows = reshape(transpose(y, {0, 2, 1, 3}), {B, T, parts_.heads * parts_.head_size});
        return drop(linear(rows, names_.output, projection(parts_.bias_output)));
    }

    /// Heads of queries, keys and values; queries and keys are turned to their positions.
    Heads heads_of(Tensor x, std::int64_t layer) {
        const std::int64_t B = x.dim(0), T = x.dim(1), H = parts_.heads, G = parts_.key_heads,
                           D = parts_.head_size;
        const bool bias = parts_.bias_qkv;
        const auto head_major = [](Tensor part) { return transpose(part, {0, 2, 1, 3}); };
        const auto finished = [&](Tensor part, std::string_view name) {
            if (parts_.qk_norm == QkNorm::head) part = norm(part, name);
            return head_major(parts_.turns(layer) ? turned(part, turn_of(layer)) : part);
        };
        if (names_.qkv.empty()) {
            const auto made = [&](std::string_view name, std::int64_t count, std::string_view norm_name) {
                Tensor y = linear(x, name, into(count * D, bias));
                if (parts_.qk_norm == QkNorm::all && !norm_name.empty()) y = norm(y, norm_name);
                return reshape(y, {B, T, count, D});
            };
            const Tensor q = finished(made(names_.q, H, names_.q_norm), names_.q_norm);
            const Tensor k = finished(made(names_.k, G, names_.k_norm), names_.k_norm);
            return {.q = q, .k = k, .v = head_major(made(names_.v, G, ""))};
        }
        const Tensor qkv = linear(x, names_.qkv, into((H + 2 * G) * D, bias));
        if (parts_.qkv_rows == QkvRows::heads) {
            const Tensor by_heads = reshape(qkv, {B, T, H, 3, D});
            const auto third = [&](std::int64_t i) {
                return reshape(slice(by_heads, 3, i, i + 1), {B, T, H, D});
            };
            return {.q = finished(third(0), names_.q_norm),
                    .k = finished(third(1), names_.k_norm),
                    .v = head_major(third(2))};
        }
        if (G == H && !parts_.turns(layer) && parts_.qk_norm == QkNorm::none) {
            const auto thirds = split(transpose(reshape(qkv, {B, T, 3, H, D}), {2, 0, 3, 1, 4}), 0, 3);
            const auto part = [&](std::size_t i) { return reshape(thirds[i], {B, H, T, D}); };
            const Tensor q = part(0), k = part(1), v = part(2);
            return {.q = q, .k = k, .v = v};
        }
        const auto part = [&](std::int64_t first, std::int64_t count) {
            return reshape(slice(qkv, 2, first * D, (first + count) * D), {B, T, count, D});
        };
        return {.q = finished(part(0, H), names_.q_norm),
                .k = finished(part(H, G), names_.k_norm),
                .v = head_major(part(H + G, G))};
    }

    const Turn& turn_of(std::int64_t layer) const {
        return parts_.rotary_of_windows && parts_.has_window(layer) ? turn_of_windows_ : turn_;
    }

    /// Turns the first elements of each head of x [B, T, H, D]. If rows have positions of their own, all
    /// tokens are treated as one sequence.
    Tensor turned(Tensor x, const Turn& turn) const {
        const std::int64_t size = 2 * turn.cosine.dim(1), D = x.dim(3);
        if (size < D) return concat(std::vector{turned(slice(x, 3, 0, size), turn), slice(x, 3, size, D)}, 3);
        if (turn.cosine.dim(0) == x.dim(1)) return rotary(x, turn.cosine, turn.sine);
        const Shape shape = x.shape();
        return reshape(rotary(reshape(x, {1, -1, shape[2], shape[3]}), turn.cosine, turn.sine), shape);
    }

    /// [B, G, T, D] -> [B, H, T, D]: consecutive query heads share a key head.
    Tensor repeated(Tensor x) const {
        const std::int64_t B = x.dim(0), G = x.dim(1), T = x.dim(2), D = x.dim(3), H = parts_.heads;
        if (G == H) return x;
        return reshape(broadcast_to(reshape(x, {B, G, 1, T, D}), {B, G, H / G, T, D}), {B, H, T, D});
    }

    Tensor whole_attention(const Heads& heads, Tensor visible) {
        const Tensor products = matmul(heads.q, repeated(heads.k), {.transpose_b = true});
        const Tensor scores = capped(products * parts_.scale(), parts_.attention_cap);
        const Tensor hidden = constant(graph_, -std::numeric_limits<double>::infinity());
        return matmul(drop(softmax(select(visible, scores, hidden))), repeated(heads.v));
    }

    Tensor mlp(Tensor x) {
        const Under scope(graph_, names_.mlp);
        const std::int64_t F = parts_.hidden;
        const bool bias = parts_.bias_mlp;
        const auto down = [&](Tensor hidden) { return drop(linear(hidden, names_.down, projection(bias))); };
        if (!parts_.gated) return down(activated(linear(x, names_.up, into(F, bias)), parts_.activation));
        Tensor gate, up;  // [B, T, F]
        if (names_.gate_up.empty()) {
            gate = linear(x, names_.gate, into(F, bias));
            up = linear(x, names_.up, into(F, bias));
        } else {
            const auto both = split(linear(x, names_.gate_up, into(2 * F, bias)), 2, 2);
            gate = both[0], up = both[1];
        }
        return down(activated(gate, parts_.activation) * up);
    }

    const Decoder& parts_;
    const DecoderNames& names_;
    Graph& graph_;
    const Mode& mode_;
    Tensor embedding_;  // [V, C]
    Turn turn_, turn_of_windows_;
    /// bool [T, T], [B, 1, T, T]: whether query (row) sees key (column), in the context and in the window.
    Tensor visible_, visible_in_window_;
    std::optional<KeyCache> kept_;  // while text is generated
};

void require_fit(const DecoderConfig& config, std::int64_t sequence) {
    if (sequence > config.parts.context)
        throw UserError(fmt::format("{} has a context of {} tokens, a sequence of {} does not fit",
                                    config.name, config.parts.context, sequence));
}

void validate(const DecoderConfig& config, const Tensor& tokens) {
    if (tokens.rank() != 2)
        throw UserError(fmt::format("tokens must be [B, T], got {}", tokens.type().text()));
    nn::validate(config);
    require_fit(config, tokens.dim(1));
}

}  // namespace

Tensor decoder_logits(const DecoderConfig& config, Tensor tokens, const Mode& mode,
                      const DocumentPlaces& places) {
    validate(config, tokens);
    return Pass(config, tokens.graph(), mode).logits(tokens, places);
}

Tensor decoder_next_logits(const DecoderConfig& config, Tensor tokens, Tensor positions, DType kept) {
    validate(config, tokens);
    return Pass(config, tokens.graph(), {}).next_logits(tokens, positions, kept);
}

namespace {

Tensor decoder_loss_of(const DecoderConfig& config, Documents documents, std::span<const Tensor> inputs,
                       const Mode& mode) {
    const bool packed = documents == Documents::packed;
    const DocumentPlaces places = packed ? packed_inputs(inputs).places : DocumentPlaces{};
    const Tensor logits = decoder_logits(config, inputs[0], mode, places);
    const OriginScope scope(logits.graph(), "loss");
    return packed ? loss_of_documents(logits, packed_inputs(inputs)) : loss_of_text(logits, inputs[1], mode);
}

}  // namespace

Model decoder_model(const DecoderConfig& config, std::int64_t sequence, Documents documents) {
    validate(config);
    require_fit(config, sequence);
    return {.name = config.name,
            .unit = "tokens",
            .units_per_example = sequence,
            .inputs = text_inputs(sequence, documents),
            .loss = [config, documents](
                        Graph&, std::span<const Tensor> inputs,
                        const Mode& mode) { return decoder_loss_of(config, documents, inputs, mode); },
            .configuration = decoder_configuration(config, sequence, documents),
            .files = std::make_shared<const WeightFiles>(decoder_files(config)),
            .flops_per_example = config.flops_per_token(sequence) * static_cast<double>(sequence)};
}

LanguageModel decoder_language_model(const DecoderConfig& config) {
    bool all_windowed = true;
    for (std::int64_t layer = 0; layer < config.parts.layers; ++layer)
        all_windowed = all_windowed && config.parts.has_window(layer);
    return {
        .name = config.name,
        .vocabulary = config.parts.vocabulary,
        .context = config.parts.context,
        .reach = all_windowed ? config.parts.window : config.parts.context,
        .parameters = config.parameters(),
        .on_sequences = [config](std::int64_t sequence) { return decoder_model(config, sequence); },
        .on_packed_documents =
            [config](std::int64_t sequence) { return decoder_model(config, sequence, Documents::packed); },
        .next_logits = [config](Tensor tokens, Tensor positions,
                                DType kept) { return decoder_next_logits(config, tokens, positions, kept); }};
}

}  // namespace mantissa::nn
