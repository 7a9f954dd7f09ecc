// Stochastic gradient descent with momentum, as torch.optim.SGD.
#pragma once

#include "mantissa/train/optimizer.h"

namespace mantissa::inline v0 {

/// To the gradient g is added weight_decay times the parameter p. The buffer becomes momentum times itself
/// plus (1 - dampening) g, in the first step g itself. From p is taken the learning rate times the buffer,
/// with Nesterov's momentum times g + momentum buffer, without momentum times g.
struct SgdOptions {
    double momentum = 0;
    double dampening = 0;
    bool nesterov = false;
    double weight_decay = 0;
    /// Decay matrices (and tables) only, not biases and the weights of norms.
    bool decay_matrices_only = false;
};

/// With momentum it keeps `sgd.step` (f64 scalar) and, for a parameter P, `sgd.momentum.P`; else nothing.
/// Throws UserError for a momentum outside [0, 1), a dampening outside [0, 1], one of both that needs what is
/// not there, and for a decay that is negative or not finite in FP32.
Optimizer sgd(const SgdOptions& options = {});

}  // namespace mantissa
