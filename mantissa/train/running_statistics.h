// Running statistics, the states of the kind `running` and histories of largest magnitudes: what a forward
// pass recorded of them becomes part of a step that is whole or leaves no trace.
//
//   forward pass:       running_mean <- running_average(running_mean, mean of the batch)
//   step:               running_mean <- select(apply, running_average(running_mean, mean), running_mean)
//   of two micro-batches: first  gradient.running_mean <- running_average(running_mean, mean)
//                       last   running_mean <- select(apply, running_average(gradient.running_mean, mean),
//                                                     running_mean)
//
// So each micro-batch's statistics are blended once, in their order, with the bits of as many steps.
//
// A rank cannot blend its micro-batches before it knows what those of the ranks before it came to. So there
// they are kept as they are, gathered, and blended by every rank, all in their order.
#pragma once

#include <cstdint>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/distribute.h"

namespace mantissa::inline v0 {

/// For micro-batches but the last: they blend into states of their own, gradient.NAME, which are zero between
/// steps as sums of gradients are, and count themselves in gradient.micro_batches; the running statistics
/// stay.
void blend_into_kept(Graph& graph);

/// The last micro-batch: its statistics are blended with the kept ones, which are then zero again.
void blend_with_kept(Graph& graph);

/// The same two for a rank that makes so many micro-batches of a step: statistics are kept in
/// gradient.statistics.K, [micro-batches - 1, channels of all that follow theirs alike], oldest first. What
/// these hold between steps means nothing.
void keep_statistics(Graph& graph, std::int64_t micro_batches);
void blend_all_statistics(Graph& graph, std::int64_t micro_batches, const Distribution& distribution);

/// Lets a step that is not applied leave the running statistics as they were, to the bit.
void apply_running_statistics(Graph& graph, Tensor apply);

}  // namespace mantissa
