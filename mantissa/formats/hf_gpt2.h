// GPT-2 in the files of Hugging Face's library: same names as here, and four weights a layer that are stored
// [in, out] there and [out, in] here.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "mantissa/formats/weight_files.h"

namespace mantissa::inline v0 {

/// The facts about a model that the names and shapes of a checkpoint tell. The number of heads is not among
/// it.
struct Gpt2Sizes {
    std::int64_t layers = 0, channels = 0, context = 0, vocabulary = 0;
    bool bias = true;  ///< of linear layers and norms
    bool operator==(const Gpt2Sizes&) const = default;
};

/// Whether the checkpoint holds the parameter transposed:
/// `h.*.{attn.c_attn,attn.c_proj,mlp.c_fc,mlp.c_proj}.weight`.
bool is_transposed_in_hf(std::string_view name);

/// Sizes of the model that a checkpoint holds. Throws UserError, beginning with `source`, if it is not a
/// GPT-2.
Gpt2Sizes gpt2_sizes_of(std::span<const TensorView> file, const std::string& source);

/// The rules of their files: names with and without "transformer."; the mask buffers `*.attn.bias` and
/// `*.attn.masked_bias` are no parameters; `lm_head.weight` must equal `wte.weight`.
WeightFiles hf_gpt2_files();

/// The members of `config.json` that say how much training drops; those that it lacks are 0.1.
inline constexpr std::string_view hf_gpt2_dropouts[] = {"embd_pdrop", "attn_pdrop", "resid_pdrop"};

/// The text of `config.json`, which their library needs beside the weights. It names no tokens that begin and
/// end a text (with_token_ids).
std::string hf_gpt2_config(const Gpt2Sizes& sizes, std::int64_t heads, double dropout = 0);

}  // namespace mantissa
