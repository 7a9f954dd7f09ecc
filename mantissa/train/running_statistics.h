// Running statistics: the states of the kind `running` and histories of largest magnitudes. The updates that
// a forward pass recorded become part of a step that is applied whole or leaves no trace.
//
//   forward pass:       running_mean <- running_average(running_mean, mean of the batch)
//   step:               running_mean <- select(apply, running_average(running_mean, mean), running_mean)
//   of two micro-batches: first  gradient.running_mean <- running_average(running_mean, mean)
//                       last   running_mean <- select(apply, running_average(gradient.running_mean, mean),
//                                                     running_mean)
//
// So each micro-batch's statistics are blended once, in order, with the same bits as in as many steps.
//
// A rank cannot blend its micro-batches before it knows the result of the ranks before it. So ranks keep the
// statistics unblended, gather them, and every rank blends all of them in order.
#pragma once

#include <cstdint>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/distribute.h"

namespace mantissa::inline v0 {

/// For all micro-batches but the last: they blend into states of their own, gradient.NAME, and count
/// themselves in gradient.micro_steps. Both are zero between steps, as sums of gradients are. The running
/// statistics stay unchanged.
void blend_into_kept(Graph& graph);

/// For the last micro-batch: blends its statistics with the kept ones, and sets these to zero.
void blend_with_kept(Graph& graph);

/// Counterparts of the two functions above for several ranks. Statistics are kept in gradient.statistics.K,
/// [micro-batches - 1, channels of all statistics with one rule of update], oldest first. Their values mean
/// nothing between steps.
void keep_statistics(Graph& graph, std::int64_t micro_batches);
void blend_all_statistics(Graph& graph, std::int64_t micro_batches, const Distribution& distribution);

/// Keeps the running statistics as they were, to the bit, in a step that is not applied.
void apply_running_statistics(Graph& graph, Tensor apply);

}  // namespace mantissa
