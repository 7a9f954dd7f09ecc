// Running statistics, the states of the kind `running`: what a forward pass recorded of them becomes part of
// a step that is whole or leaves no trace.
//
//   forward pass:       running_mean <- running_average(running_mean, mean of the batch)
//   step:               running_mean <- select(apply, running_average(running_mean, mean), running_mean)
//   of two micro-steps: first  gradient.running_mean <- running_average(running_mean, mean)
//                       last   running_mean <- select(apply, running_average(gradient.running_mean, mean),
//                                                     running_mean)
//
// So each micro-step's statistics are blended once, in their order, with the bits of as many steps.
#pragma once

#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0 {

/// For micro-steps but the last: they blend into states of their own, gradient.NAME, which are zero between
/// steps as sums of gradients are, and count themselves in gradient.micro_steps; the running statistics stay.
void blend_into_kept(Graph& graph);

/// For the last: its statistics are blended with what was kept, and what was kept is zero again.
void blend_with_kept(Graph& graph);

/// Lets a step that is not applied leave the running statistics as they were, to the bit.
void apply_running_statistics(Graph& graph, Tensor apply);

}  // namespace mantissa
