// The loss scale: FP16 gradients smaller than 2^-24 are lost, so the loss is multiplied by a scale before the
// backward pass and the gradients are divided by it before they are used. It lives in the graph, like the
// update: no wait for the host.
//
// Dynamic, as Micikevicius et al., "Mixed precision training" (ICLR 2018), and PyTorch's GradScaler have it:
// a step whose gradients are not finite is skipped and the scale halved; after `interval` good steps in a row
// it is doubled. Unlike GradScaler's it never falls below a floor.
#pragma once

#include "mantissa/graph/graph.h"
#include "mantissa/train/trainer.h"

namespace mantissa::inline v0 {

/// Throws UserError if a number is not positive or not finite, growth is below 1, backoff not inside (0, 1),
/// or the initial scale below the floor.
void validate(const LossScaleOptions& options);

/// FP16 needs a scale, the dynamic one of the defaults; no other policy does.
LossScaleOptions default_loss_scale(const Policy& policy);

/// The scale that a step starts with, an f32 scalar: the state `loss_scale.scale`, which the first call adds;
/// or a constant. With kind none: empty.
Tensor loss_scale(Graph& graph, const LossScaleOptions& options);

/// Adds the updates of the states `loss_scale.scale`, `loss_scale.good_steps` (in a row) and
/// `loss_scale.skipped` (ever). `applied`: a boolean scalar, whether the step was good.
void update_loss_scale(Graph& graph, Tensor applied, const LossScaleOptions& options);

}  // namespace mantissa
