// LLaMA: Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", 2023, with the grouped keys
// and values of its second and the stretched positions of its third version. Pre-norm blocks of RMS norms,
// rotary positions and SwiGLU, without biases. And Mistral, whose tokens see a window of those before.
//
// Parameters carry the names that Hugging Face's checkpoints give them (model.embed_tokens.weight,
// model.layers.0.self_attn.q_proj.weight, ...); weights of linear layers are stored [outputs, inputs].
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/formats/hf_llama.h"
#include "mantissa/nn/documents.h"
#include "mantissa/nn/language_model_files.h"

namespace mantissa::inline v0::nn {

struct LlamaConfig {
    std::string name;
    LlamaSizes sizes = {};

    /// Elements of all parameters, a tied head once.
    std::int64_t parameters() const;
    /// Forward and backward work per trained token at sequence length T: 6 N + 6 L H D T, the causal half
    /// counted, and 2 W - W^2 / T in place of T where a window W is less; the embedding is in N where it is
    /// the head, too.
    double flops_per_token(std::int64_t sequence) const;

    bool operator==(const LlamaConfig&) const = default;
};

/// llama-tiny, llama-15m, llama-42m, llama-110m (stories15m and so on, of llama2.c), llama-1100m (tinyllama)
/// and mistral-tiny. Throws UserError, naming those there are, for another name.
LlamaConfig llama_config(std::string_view name);

/// The names that llama_config knows: LLaMAs, smallest first, then Mistrals.
std::vector<std::string> llama_names();
/// Whether llama_config knows the name.
bool is_llama(std::string_view name);

/// The same model in other sizes, under a name that says so; `config` where none differs. Throws UserError
/// for a dropout or biases, which the family has not.
LlamaConfig with_sizes(LlamaConfig config, const ModelSizes& sizes);

/// The LLaMA whose config.json lies in `directory`. Throws UserError that names the file if it is none as
/// this project knows it.
LlamaConfig llama_config_of(const std::filesystem::path& directory);

/// Throws UserError for sizes that make no model.
void validate(const LlamaConfig& config);

/// theta^(-2 i / D) of each pair i, stretched as the sizes say; in FP32 throughout, as the models were
/// trained.
std::vector<double> rotary_frequencies(const LlamaSizes& sizes);

/// The model in training, on the inputs of text_inputs. Throws UserError if the sequence exceeds the context.
Model llama_model(const LlamaConfig& config, std::int64_t sequence, Documents documents = Documents::joined);

/// The model as one that generates text, too.
LanguageModel llama_language_model(const LlamaConfig& config);

/// tokens i32 [B, T] -> logits [B, T, V]. Throws UserError if T exceeds the context.
Tensor llama_logits(const LlamaConfig& config, Tensor tokens, const DocumentPlaces& places = {});

/// Scores of the token after the last one, [B, V], as gpt2_next_logits has them: keys, turned to their
/// positions, and values of all tokens before are the states `cache.model.layers.L.self_attn.k` and `.v`
/// [B, G, context, D].
Tensor llama_next_logits(const LlamaConfig& config, Tensor tokens, Tensor positions, DType kept = DType::f32);

}  // namespace mantissa::nn
