// LLaMA in the files of Hugging Face's library: config.json and the rules of its weights, whose names and
// shapes are those used here. The model is a LlamaForCausalLM or, where tokens see a window of those before,
// a MistralForCausalLM.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mantissa/formats/weight_files.h"

namespace mantissa::inline v0 {

/// Rotary positions: the pair i of a head of D elements turns by position * theta^(-2 i / D). `kind` changes
/// that for contexts longer than those that a model was first trained on.
struct LlamaRotary {
    enum class Kind : std::uint8_t {
        plain,
        linear,  ///< all angles divided by `factor`
        llama3   ///< slow ones divided by `factor`, fast ones as they are, those between a blend of both
    };
    Kind kind = Kind::plain;
    double theta = 10000;
    double factor = 1;
    /// The rule of llama3: a pair that turns less than `low_frequency_factor` times within the original
    /// context is slow, one that turns more than `high_frequency_factor` times fast.
    double low_frequency_factor = 1, high_frequency_factor = 4;
    std::int64_t original_context = 8192;

    bool operator==(const LlamaRotary&) const = default;
};

/// All that config.json says of a model.
struct LlamaSizes {
    std::int64_t layers = 0;          // L
    std::int64_t heads = 0;           // H
    std::int64_t key_heads = 0;       // G, divides H
    std::int64_t head_size = 0;       // D, even; H D need not be C
    std::int64_t channels = 0;        // C
    std::int64_t hidden = 0;          // F: of the SwiGLU between
    std::int64_t vocabulary = 32000;  // V
    std::int64_t context = 2048;      ///< the longest T
    double epsilon = 1e-5;            ///< of RMS norms
    LlamaRotary rotary = {};
    bool tied = false;  ///< the head is the embedding
    /// Tokens that each sees, itself included; 0: all before it. With one it is a Mistral: Jiang et al.,
    /// "Mistral 7B", 2023.
    std::int64_t window = 0;

    bool operator==(const LlamaSizes&) const = default;
};

/// Reads the text of config.json: rope_theta and rope_scaling as transformers 4 writes them, or
/// rope_parameters of transformers 5. Throws UserError, beginning with `source`, for another family or
/// activation, and for biases. Throws it, too, for a window of a LLaMA or one of no token, for layers that do
/// not all attend alike (layer_types), for another type of rotary positions than those above, and for a key
/// that is not known.
LlamaSizes read_hf_llama_config(std::string_view text, const std::string& source);

/// The members of config.json that say how much training drops.
inline constexpr const char* hf_llama_dropouts[] = {"attention_dropout"};

/// The text of config.json for such a model, as transformers 4 and 5 read it. It names no tokens that begin
/// and end a text (with_token_ids).
std::string hf_llama_config(const LlamaSizes& sizes);

/// The rules of their weights: frequencies that old files store (`*.rotary_emb.inv_freq`) are no parameters;
/// where the head is tied, `lm_head.weight` must equal `model.embed_tokens.weight`.
WeightFiles hf_llama_files(const LlamaSizes& sizes);

}  // namespace mantissa
