// A network that predicts the next token of a text, made of described parts: what published families of
// models differ in is data here. A family (nn/decoder/family.h) says how a config.json maps to the parts, and
// how the weights are called.
//
// Parameters carry the names that Hugging Face's checkpoints give them (model.embed_tokens.weight,
// model.layers.0.self_attn.q_proj.weight, ...); weights of linear layers are stored [outputs, inputs].
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/nn/documents.h"
#include "mantissa/nn/language_model.h"

namespace mantissa::inline v0::nn {

/// Rotary positions: the pair i of the d elements of a head that turn does so by position * theta^(-2 i / d).
/// `kind` changes that for contexts longer than those that a model was first trained on.
struct Rotary {
    enum class Kind : std::uint8_t {
        plain,
        linear,   ///< all angles divided by `factor`
        llama3,   ///< slow ones divided by `factor`, fast ones as they are, those between a blend of both
        yarn,     ///< the same with other bounds; cosines and sines are scaled. Peng et al. 2023
        dynamic,  ///< changes with texts longer than the context, which are not run: plain
        longrope  ///< each divided by its `short_factors`, up to the original context. Ding et al. 2024
    };
    Kind kind = Kind::plain;
    double theta = 10000;
    double factor = 1;
    /// The rule of llama3: a pair that turns less than `low_frequency_factor` times within the original
    /// context is slow, one that turns more than `high_frequency_factor` times fast.
    double low_frequency_factor = 1, high_frequency_factor = 4;
    std::int64_t original_context = 8192;
    double part = 1;              ///< of a head's elements, the first, that turn
    bool truncated = true;        ///< yarn, whose bounds follow from the same factors, has whole ones
    double attention_factor = 0;  ///< of cosines and sines, of yarn and longrope; 0: as `factor` says
    std::vector<double> short_factors = {}, long_factors = {};  ///< of longrope, one for each pair
    std::int64_t stretched_context = 0;  ///< of longrope, to which its long factors lead

    bool operator==(const Rotary&) const = default;
};

/// Elements of a head of so many that turn.
std::int64_t turning_elements(const Rotary& rotary, std::int64_t head_size);

/// The angle of each pair at position 1; in FP32 throughout, as the models were trained.
std::vector<double> rotary_frequencies(const Rotary& rotary, std::int64_t head_size);

/// The number that cosines and sines are multiplied by.
double rotary_scale(const Rotary& rotary);

enum class Activation : std::uint8_t { silu, gelu, gelu_tanh, relu };
/// Norms of queries and keys: none, over each head, or over all heads together.
enum class QkNorm : std::uint8_t { none, head, all };
/// Rows of a weight that makes queries, keys and values at once: all of the queries, then of the keys, then
/// of the values; or those three head by head.
enum class QkvRows : std::uint8_t { thirds, heads };

/// The parts of a network. Those that are not named are LLaMA's: Touvron et al., "LLaMA: Open and Efficient
/// Foundation Language Models", 2023.
struct Decoder {
    std::int64_t layers = 0;          // L
    std::int64_t heads = 0;           // H
    std::int64_t key_heads = 0;       // G, divides H
    std::int64_t head_size = 0;       // D; H D need not be C
    std::int64_t channels = 0;        // C
    std::int64_t hidden = 0;          // F: of the feed-forward part
    std::int64_t vocabulary = 32000;  // V
    std::int64_t context = 2048;      ///< the longest T
    double epsilon = 1e-5;            ///< of norms
    Rotary rotary = {};
    bool tied = false;  ///< the head is the embedding
    /// Tokens that each sees, itself included; 0: all before it. Jiang et al., "Mistral 7B", 2023.
    std::int64_t window = 0;
    /// Whether each layer has the window; empty: all have.
    std::vector<bool> windowed = {};
    /// Whether each layer turns its queries and keys; empty: all do.
    std::vector<bool> turned = {};
    std::optional<Rotary> rotary_of_windows = {};  ///< where layers with the window have another
    bool learned_positions = false;                ///< added to the embedding, in place of rotary ones
    std::int64_t first_position = 0;               ///< the row of learned positions that is the first's

    bool layer_norms = false;  ///< with biases where `bias_norm`; else RMS norms
    bool one_plus = false;     ///< norms multiply by 1 + weight
    QkNorm qk_norm = QkNorm::none;
    bool bias_qkv = false, bias_output = false, bias_mlp = false, bias_norm = true, bias_head = false;
    QkvRows qkv_rows = QkvRows::thirds;
    Activation activation = Activation::silu;
    bool gated = true;            ///< the activation of one product times another
    bool parallel = false;        ///< attention and feed-forward read the same and are added together
    bool root_embedding = false;  ///< the embedding times sqrt(C)
    double embedding_multiplier = 1, residual_multiplier = 1, logits_divisor = 1;
    /// The scale of scores; else 1 / sqrt(query_scalar), or of the head size where that is 0, too.
    double attention_multiplier = 0;
    std::int64_t query_scalar = 0;
    double attention_cap = 0, logits_cap = 0;  ///< c tanh(x / c) of scores, of logits; 0: as they are
    double dropout = 0;                        ///< after embedding, attention weights and each projection

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

    /// Elements of all parameters, a tied head once.
    std::int64_t parameters() const;
    /// Forward and backward work per trained token at sequence length T: 6 N + 6 L H D T, the causal half
    /// counted, and 2 W - W^2 / T in place of T where a window W is less; the embedding is in N where it is
    /// the head, too.
    double flops_per_token(std::int64_t sequence) const;

    bool operator==(const DecoderConfig&) const = default;
};

/// Throws UserError for sizes that make no model.
void validate(const DecoderConfig& config);

/// The model in training, on the inputs of text_inputs. Throws UserError if the sequence exceeds the context.
Model decoder_model(const DecoderConfig& config, std::int64_t sequence,
                    Documents documents = Documents::joined);

/// The model as one that generates text, too.
LanguageModel decoder_language_model(const DecoderConfig& config);

/// tokens i32 [B, T] -> logits [B, T, V]. Throws UserError if T exceeds the context.
Tensor decoder_logits(const DecoderConfig& config, Tensor tokens, const Mode& mode = {},
                      const DocumentPlaces& places = {});

/// Scores of the token after the last one, [B, V], keys and values of all tokens before being kept: tokens
/// i32 [B, T] stand at positions i32 [B, T], in each row p, p + 1, ..., p + T - 1, where p is how many came
/// before. Adds the states `cache.LAYER.ATTENTION.k`, turned to their positions, and `.v` [B, G, context, D]
/// of each layer and writes T rows of them, stored as `kept`. Throws UserError as decoder_logits.
Tensor decoder_next_logits(const DecoderConfig& config, Tensor tokens, Tensor positions,
                           DType kept = DType::f32);

}  // namespace mantissa::nn
