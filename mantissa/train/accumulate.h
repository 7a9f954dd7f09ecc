// Gradient accumulation: the micro-batches of a step add up over one fixed tree, a binary one over their
// indices. So a sum has the same bits whoever makes which part of it:
//
//     g0  g1   g2  g3   g4
//      \ /      \ /     |
//      (+)      (+)     |
//        \      /       |
//          (+)          |
//            \_________/
//                (+)
//
// A sum of 2^k micro-batches is kept in the states `gradient.K.P`, one for each parameter P,
// `gradient.K.loss`, and one for each metric (nn/metrics.h). Where index i ends in c ones in binary,
// micro-batch i completes the sums of c levels and leaves its own in the next. All micro-batches but the last
// run a graph for each c. The last runs another, which adds up the sums that are left. The states' values
// mean nothing between steps: whatever a step reads there, it wrote before.
#pragma once

#include "mantissa/train/optimizer_update.h"

namespace mantissa::inline v0 {

/// How many levels of sums a step of so many micro-batches keeps: log2 of their number, rounded up.
int kept_levels(std::int64_t micro_batches);

/// How many levels micro-batch `index`, not the last of its step, completes.
int completed_levels(std::int64_t index);

/// The update of the micro-batches that complete so many levels: puts gradients (in FP32), loss and metrics
/// into their states, and running statistics in theirs (running_statistics.h). Of so many micro-batches of a
/// rank. No results.
TraceUpdate add_to_gradients(int completed, std::int64_t micro_batches,
                             const Distribution& distribution = {});

/// The update of the last of so many micro-batches: `update` is given the sums of all, of every rank; the
/// metrics in the graph's results become such, too. Ranks go
/// on where the tree of one ends: with 2^k micro-batches each, it is that of one rank that makes them all.
/// With sharded states it is given the sum of this rank's part alone of what may be cut and is large enough.
TraceUpdate with_added_gradients(TraceUpdate update, std::int64_t micro_batches,
                                 const Distribution& distribution = {}, const MayBeCut& may_be_cut = {});

}  // namespace mantissa
