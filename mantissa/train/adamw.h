// AdamW: Loshchilov, Hutter, "Decoupled weight decay regularization", ICLR 2019, as in PyTorch.
#pragma once

#include "mantissa/train/optimizer.h"

namespace mantissa::inline v0 {

struct AdamWOptions {
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    double weight_decay = 0.1;
    /// Decay matrices (and tables) only, not biases and the weights of norms.
    bool decay_matrices_only = true;
};

/// Keeps `adamw.step` (f64 scalar) and, for a parameter P, `adamw.m.P` and `adamw.v.P`. Throws UserError for
/// betas outside [0, 1), and for a decay or epsilon that is negative or not finite in FP32.
Optimizer adamw(const AdamWOptions& options = {});

}  // namespace mantissa
