// GPT-2 as published: Radford et al., "Language models are unsupervised multitask learners", 2019. Pre-norm
// blocks, tanh GELU, learned positions, the embedding tied to the output, initial weights from N(0, 0.02)
// with the projections onto the residual stream scaled by 1/sqrt(2 L).
//
// Parameters carry the names that published checkpoints give them (wte.weight, h.0.attn.c_attn.weight, ...);
// weights of linear layers are stored [outputs, inputs].
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/nn/decoder/decoder.h"
#include "mantissa/nn/language_model_files.h"

namespace mantissa::inline v0::nn {

struct Gpt2Config {
    std::string name;
    std::int64_t layers = 12;         // L
    std::int64_t heads = 12;          // H
    std::int64_t channels = 768;      // C, a multiple of H
    std::int64_t vocabulary = 50257;  // V
    std::int64_t context = 1024;      // the longest T
    double dropout = 0;               ///< after embedding, attention weights and each projection
    bool bias = true;                 ///< of linear layers and norms

    std::int64_t head_size() const { return channels / heads; }
    /// Elements of all parameters, the tied embedding once.
    std::int64_t parameters() const;
    /// Forward and backward work per trained token at sequence length T: 6 N + 6 L C T, the causal half
    /// counted.
    double flops_per_token(std::int64_t sequence) const;

    bool operator==(const Gpt2Config&) const = default;
};

/// The network that it is.
DecoderConfig decoder_of(const Gpt2Config& config);

/// gpt2-tiny, gpt2-124m (or gpt2), gpt2-355m (gpt2-medium), gpt2-774m (gpt2-large), gpt2-1558m (gpt2-xl).
/// Throws UserError, naming those there are, for another name.
Gpt2Config gpt2_config(std::string_view name);

/// The names that gpt2_config knows, smallest first.
std::vector<std::string> gpt2_names();

/// Whether gpt2_config knows the name.
bool is_gpt2(std::string_view name);

/// The same model in other sizes, under a name that says so; `config` where none differs.
Gpt2Config with_sizes(Gpt2Config config, const ModelSizes& sizes);

/// The GPT-2 that Hugging Face's files in `directory` hold, whose weights are read from `source`. Throws
/// UserError that names the file if it is none as this project knows it.
Gpt2Config gpt2_config_of(std::span<const TensorView> weights, const std::string& source,
                          const std::filesystem::path& directory);

/// Throws UserError for sizes that make no model: none or too large, or heads that do not divide the
/// channels.
void validate(const Gpt2Config& config);

/// The model in training, on the inputs of text_inputs. Its FLOPs are those of the published formula, which
/// knows of no documents. Throws UserError if the sequence exceeds the context.
Model gpt2_model(const Gpt2Config& config, std::int64_t sequence, Documents documents = Documents::joined);

/// The model as one that generates text, too.
LanguageModel gpt2_language_model(const Gpt2Config& config);

/// tokens i32 [B, T] -> logits [B, T, V]. Throws UserError if T exceeds the context.
Tensor gpt2_logits(const Gpt2Config& config, Tensor tokens, const Mode& mode = {},
                   const DocumentPlaces& places = {});

/// As decoder_next_logits, with the states `cache.h.L.attn.k` and `cache.h.L.attn.v`.
Tensor gpt2_next_logits(const Gpt2Config& config, Tensor tokens, Tensor positions, DType kept = DType::f32);

/// Mean cross-entropy of targets i32 [B, T].
Tensor gpt2_loss(const Gpt2Config& config, Tensor tokens, Tensor targets, const Mode& mode = {});

}  // namespace mantissa::nn
