// AdamW, recorded in the graph: the update of every parameter, skipped as a whole when anything is not
// finite.
#pragma once

#include "mantissa/passes/pipeline.h"
#include "mantissa/train/loss_scale.h"

namespace mantissa {

struct AdamWOptions {
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    double weight_decay = 0.1;
    /// Decay matrices (and tables) only, not biases and the weights of norms.
    bool decay_matrices_only = true;
    /// The gradient is scaled down to this norm; 0: never. As in PyTorch: by clip / (norm + 1e-6) if that is
    /// below 1.
    double clip = 0;
};

/// Adds the input `learning_rate` (f32 scalar); the states `adamw.step` (f64 scalar) and, for a parameter P,
/// `adamw.m.P` and `adamw.v.P`; and the results `loss`, `gradient_norm` (f32 scalars) and `applied` (bool).
/// If the loss or any element of a gradient is not finite, nothing is updated, to the bit, and `applied` is
/// false. Throws UserError for betas outside [0, 1), and for a decay, clip or epsilon that is negative or not
/// finite in FP32.
/// Gradients that come with a loss scale are divided by it; see loss_scale.h.
TraceUpdate adamw_update(const AdamWOptions& options, const LossScaleOptions& scaling = {});

}  // namespace mantissa
