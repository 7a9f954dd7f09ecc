// The loss scale: FP16 gradients below 2^-24 are lost. So the loss is multiplied by a scale before the
// backward pass, and gradients are divided by it before use. It lives in the graph, like the update, so the
// host never waits for it.
//
// Dynamic, as in Micikevicius et al., "Mixed precision training" (ICLR 2018), and PyTorch's GradScaler. A
// step with gradients that are not finite is skipped, and the scale is halved; after `interval` good steps in
// a row it is doubled. Unlike GradScaler's, it never falls below a floor.
#pragma once

#include "mantissa/graph/graph.h"
#include "mantissa/train/trainer.h"

namespace mantissa::inline v0 {

/// Throws UserError if a number is not positive or not finite, growth is below 1, backoff not inside (0, 1),
/// or the initial scale below the floor.
void validate(const LossScaleOptions& options);

/// The default: dynamic for FP16, none for all other policies.
LossScaleOptions default_loss_scale(const Policy& policy);

/// The scale at the start of a step, an f32 scalar: the state `loss_scale.scale`, which the first call adds,
/// or a constant. With kind none: empty.
Tensor loss_scale(Graph& graph, const LossScaleOptions& options);

/// Adds the updates of the states `loss_scale.scale`, `loss_scale.good_steps` (in a row) and
/// `loss_scale.skipped` (ever). `applied`: a boolean scalar, whether the step was good.
void update_loss_scale(Graph& graph, Tensor applied, const LossScaleOptions& options);

}  // namespace mantissa
