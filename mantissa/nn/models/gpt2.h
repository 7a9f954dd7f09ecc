// GPT-2 as published: Radford et al., "Language models are unsupervised multitask learners", 2019. Pre-norm
// blocks, tanh GELU, learned positions, the embedding tied to the output, initial weights from N(0, 0.02)
// with the projections onto the residual stream scaled by 1/sqrt(2 L).
//
// Parameters carry the names that published checkpoints give them (wte.weight, h.0.attn.c_attn.weight, ...);
// weights of linear layers are stored [outputs, inputs].
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/graph/tensor.h"

namespace mantissa::nn {

struct Gpt2Config {
    std::string name;
    std::int64_t layers = 12;         // L
    std::int64_t heads = 12;          // H
    std::int64_t channels = 768;      // C, a multiple of H
    std::int64_t vocabulary = 50257;  // V
    std::int64_t context = 1024;      // the longest T
    double dropout = 0;               ///< after embedding, attention weights and each projection

    std::int64_t head_size() const { return channels / heads; }
    /// Elements of all parameters, the tied embedding once.
    std::int64_t parameters() const;
    /// Forward and backward work per trained token at sequence length T: 6 N + 6 L C T, the causal half
    /// counted.
    double flops_per_token(std::int64_t sequence) const;
};

/// gpt2-tiny, gpt2-124m (or gpt2), gpt2-355m (gpt2-medium), gpt2-774m (gpt2-large), gpt2-1558m (gpt2-xl).
/// Throws UserError, naming those there are, for another name.
Gpt2Config gpt2_config(std::string_view name);

/// The names that gpt2_config knows, smallest first.
std::vector<std::string> gpt2_names();

/// tokens i32 [B, T] -> logits [B, T, V]. `random` is used only with dropout. Throws UserError if T exceeds
/// the context or the heads do not divide the channels.
Tensor gpt2_logits(const Gpt2Config& config, Tensor tokens, const RandomState& random = {});

/// Scores of the token after the last one, [B, V], keys and values of all tokens before being kept: tokens
/// i32 [B, T] stand at positions i32 [T] = p, p + 1, ..., p + T - 1, where p is how many came before. Adds
/// the states `cache.h.L.attn.k` and `cache.h.L.attn.v` [B, H, context, D] of each layer L and writes T rows
/// of them, stored as `kept`. No dropout. Throws UserError as gpt2_logits.
Tensor gpt2_next_logits(const Gpt2Config& config, Tensor tokens, Tensor positions, DType kept = DType::f32);

/// Mean cross-entropy of targets i32 [B, T].
Tensor gpt2_loss(const Gpt2Config& config, Tensor tokens, Tensor targets, const RandomState& random = {});

}  // namespace mantissa::nn
