// Losses of regression and of yes-or-no questions: means over all elements; losses of distributions: means
// over rows. For classes named by index: cross_entropy and counted_cross_entropy (graph/tensor.h).
//
// Prediction and target must have one shape: broadcasting would silently compare every row with every other.
// A UserError names both shapes.
#pragma once

#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0::nn {

/// The mean of (prediction - target)^2.
Tensor mse_loss(Tensor prediction, Tensor target, Where at = Where::current());

/// The mean of |prediction - target|; the gradient where they are equal is 0.
Tensor l1_loss(Tensor prediction, Tensor target, Where at = Where::current());

/// The mean of e^2 / 2 where e = |prediction - target| is at most `delta`, else of delta (e - delta / 2).
/// Huber 1964. Throws UserError unless delta is above 0.
Tensor huber_loss(Tensor prediction, Tensor target, double delta = 1.0, Where at = Where::current());

/// The mean of -(t log p + (1 - t) log(1 - p)) with p = sigmoid(logits), as softplus(logits) - t logits,
/// which stays finite; targets in [0, 1].
Tensor binary_cross_entropy(Tensor logits, Tensor targets, Where at = Where::current());

/// The mean over rows of -log p[target]: log_probabilities [..., V], targets i32 [...] in [0, V).
Tensor nll_loss(Tensor log_probabilities, Tensor targets, Where at = Where::current());

/// The mean over rows of -sum t log softmax(logits), with t the probability of each class: cross-entropy with
/// probabilities as targets.
Tensor soft_cross_entropy(Tensor logits, Tensor targets, Where at = Where::current());

/// The mean over rows of sum t (log t - log_probabilities); a t of 0 adds 0. No gradient flows to the
/// targets. Kullback, Leibler 1951.
Tensor kl_divergence(Tensor log_probabilities, Tensor targets, Where at = Where::current());

}  // namespace mantissa::nn
