// A network that predicts the next token of a text, described by data: the differences between published
// families of models are values here. A family (nn/decoder/family.h) maps a config.json to these values, and
// names the weights.
//
// Parameters have the names of Hugging Face's checkpoints (model.embed_tokens.weight,
// model.layers.0.self_attn.q_proj.weight, ...); weights of linear layers are stored [outputs, inputs].
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/nn/documents.h"
#include "mantissa/nn/language_model.h"

namespace mantissa::inline v0::nn {

/// Rotary positions: of d rotated elements of a head, pair i turns by position * theta^(-2 i / d). `kind`
/// changes the angle for contexts longer than a model's first training context.
struct Rotary {
    enum class Kind : std::uint8_t {
        plain,
        linear,   ///< all angles divided by `factor`
        llama3,   ///< slow pairs divided by `factor`, fast ones unchanged, a blend in between
        yarn,     ///< as llama3, with other bounds and scaled cosines and sines. Peng et al. 2023
        dynamic,  ///< changes beyond the context, which is not run: plain
        longrope  ///< divided by `short_factors`, up to the original context. Ding et al. 2024
    };
    Kind kind = Kind::plain;
    double theta = 10000;
    double factor = 1;
    /// llama3: a pair that turns fewer than `low_frequency_factor` times within the original context is slow;
    /// one that turns more than `high_frequency_factor` times is fast.
    double low_frequency_factor = 1, high_frequency_factor = 4;
    std::int64_t original_context = 8192;
    double part = 1;              ///< share of a head's elements, the first ones, that turn
    bool truncated = true;        ///< yarn: bounds between slow and fast are whole numbers
    double attention_factor = 0;  ///< of cosines and sines, for yarn and longrope; 0: from `factor`
    std::vector<double> short_factors = {}, long_factors = {};  ///< of longrope, one per pair
    std::int64_t stretched_context = 0;  ///< of longrope: context that its long factors reach

    bool operator==(const Rotary&) const = default;
};

/// Elements of a head of this size that turn.
std::int64_t turning_elements(const Rotary& rotary, std::int64_t head_size);

/// The angle of each pair at position 1; computed in FP32 throughout, as in the models' training.
std::vector<double> rotary_frequencies(const Rotary& rotary, std::int64_t head_size);

/// The factor of cosines and sines.
double rotary_scale(const Rotary& rotary);

enum class Activation : std::uint8_t { silu, gelu, gelu_tanh, relu };
/// Norms of queries and keys: none, over each head, or over all heads together.
enum class QkNorm : std::uint8_t { none, head, all };
/// Order of the rows of a joint weight for queries, keys and values: all queries, then keys, then values; or
/// the three for one head after another.
enum class QkvRows : std::uint8_t { thirds, heads };

/// The parts of a network. Unnamed parts are LLaMA's: Touvron et al., "LLaMA: Open and Efficient Foundation
/// Language Models", 2023.
struct Decoder {
    std::int64_t layers = 0;          // L
    std::int64_t heads = 0;           // H
    std::int64_t key_heads = 0;       // G, divides H
    std::int64_t head_size = 0;       // D; H D need not be C
    std::int64_t channels = 0;        // C
    std::int64_t hidden = 0;          // F: of the feed-forward layer
    std::int64_t vocabulary = 32000;  // V
    std::int64_t context = 2048;      ///< the longest T
    double epsilon = 1e-5;            ///< of norms
    Rotary rotary = {};
    bool tied = false;  ///< the head is the embedding
    /// Tokens that each token sees, itself included; 0: all before it. Jiang et al., "Mistral 7B", 2023.
    std::int64_t window = 0;
    /// Layers that have the window; empty: all.
    std::vector<bool> windowed = {};
    /// Layers that turn their queries and keys; empty: all.
    std::vector<bool> turned = {};
    std::optional<Rotary> rotary_of_windows = {};  ///< of layers with the window, if they differ
    bool learned_positions = false;                ///< added to the embedding, instead of rotary ones
    std::int64_t first_position = 0;               ///< row of learned positions for position 0

    bool layer_norms = false;  ///< with biases where `bias_norm`; else RMS norms
    bool one_plus = false;     ///< norms multiply by 1 + weight
    QkNorm qk_norm = QkNorm::none;
    bool bias_qkv = false, bias_output = false, bias_mlp = false, bias_norm = true, bias_head = false;
    QkvRows qkv_rows = QkvRows::thirds;
    Activation activation = Activation::silu;
    bool gated = true;            ///< the activation times a second product
    bool parallel = false;        ///< attention and feed-forward read one input, and are summed
    bool root_embedding = false;  ///< the embedding times sqrt(C)
    double embedding_multiplier = 1, residual_multiplier = 1, logits_divisor = 1;
    /// The scale of scores; 0: 1 / sqrt(query_scalar), or 1 / sqrt(head_size) if query_scalar is 0, too.
    double attention_multiplier = 0;
    std::int64_t query_scalar = 0;
    double attention_cap = 0, logits_cap = 0;  ///< c tanh(x / c) of scores, of logits; 0: no cap
    double dropout = 0;                        ///< after embedding, attention weights and projections

    double scale() const;
    bool has_window(std::int64_t layer) const;
    bool turns(std::int64_t layer) const;

    bool operator==(const Decoder&) const = default;
};

struct DecoderFamily;
const DecoderFamily& llama_family();

struct DecoderConfig {
    std::string name;
    Decoder parts = {};
    const DecoderFamily* family = &llama_family();

    /// Elements of all parameters, a tied head counted once.
    std::int64_t parameters() const;
    /// Forward and backward work per trained token at sequence length T: 6 N + 6 L H D T, with the causal
    /// half of attention counted. For a window W < T, 2 W - W^2 / T replaces T. The embedding is in N only if
    /// it is the head, too.
    double flops_per_token(std::int64_t sequence) const;

    bool operator==(const DecoderConfig&) const = default;
};

/// Throws UserError for sizes that no model can have.
void validate(const DecoderConfig& config);

/// The model in training, on the inputs of text_inputs. Throws UserError if the sequence exceeds the context.
Model decoder_model(const DecoderConfig& config, std::int64_t sequence,
                    Documents documents = Documents::joined);

/// The model for training and for generating text.
LanguageModel decoder_language_model(const DecoderConfig& config);

/// tokens i32 [B, T] -> logits [B, T, V]. Throws UserError if T exceeds the context.
Tensor decoder_logits(const DecoderConfig& config, Tensor tokens, const Mode& mode = {},
                      const DocumentPlaces& places = {});

/// Scores [B, V] of the token after the last one; keys and values of earlier tokens are kept. `tokens` i32
/// [B, T] stand at `positions` i32 [B, T]: in each row p, ..., p + T - 1 after p earlier tokens. Adds the
/// states `cache.LAYER.ATTENTION.k`, turned to their positions, and `.v` [B, G, context, D] of each layer,
/// stored as `kept`, and writes T rows of them. Throws UserError as decoder_logits does.
Tensor decoder_next_logits(const DecoderConfig& config, Tensor tokens, Tensor positions,
                           DType kept = DType::f32);

}  // namespace mantissa::nn
