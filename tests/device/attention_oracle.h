// Attention in FP64 from its definition, with the magnitude behind each element, and the plain
// version in low precision that a kernel's error is measured against.
#pragma once

#include <vector>

#include "mantissa/device/cpu/attention/attention.h"

namespace mantissa::on_cpu {

using Numbers = std::vector<double>;

/// Values, and for each the magnitude that its rounding errors are relative to.
struct Bounded {
    Numbers values, magnitudes;
    explicit Bounded(std::int64_t count)
        : values(static_cast<std::size_t>(count)), magnitudes(static_cast<std::size_t>(count)) {}
};

struct AttentionOperands {
    Numbers q, k, v, d_o;
};

struct ForwardOracle {
    Bounded o, lse;
};
ForwardOracle attention_oracle(const AttentionSize& size, const AttentionOperands& x);

/// Reads o and lse as a kernel does.
struct BackwardOracle {
    Bounded dq, dk, dv;
};
BackwardOracle attention_grad_oracle(const AttentionSize& size, const AttentionOperands& x, const Numbers& o,
                                     const Numbers& lse);

/// Scores, weights and their gradients as tensors of the type, each rounded where it is stored; sums in FP32,
/// one term after another. Heads that share keys add up what each gives to their gradients.
struct PlainAttention {
    Numbers o, dq, dk, dv;
};
PlainAttention plain_attention(const AttentionSize& size, const AttentionOperands& x);

}  // namespace mantissa::on_cpu
