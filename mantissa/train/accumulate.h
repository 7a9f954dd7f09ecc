// Gradient accumulation: the micro-batches of a step are added over one fixed binary tree on their indices. A
// sum therefore has the same bits whichever rank computes which part:
//
//     g0  g1   g2  g3   g4
//      \ /      \ /     |
//      (+)      (+)     |
//        \      /       |
//          (+)          |
//            \_________/
//                (+)
//
// The states `gradient.K.P` (one for each parameter P), `gradient.K.loss` and one for each metric
// (nn/metrics.h) keep a sum of 2^K micro-batches. If index i ends in c ones in binary, micro-batch i
// completes the sums of c levels and leaves its own in the next level. Every micro-batch but the last runs a
// graph for its c. The last runs another graph, which adds up the remaining sums. The states mean nothing
// between steps: a step writes each of them before it reads it.
#pragma once

#include "mantissa/train/optimizer_update.h"

namespace mantissa::inline v0 {

/// Levels of sums that a step of so many micro-batches keeps: log2 of their number, rounded up.
int kept_levels(std::int64_t micro_batches);

/// Levels that micro-batch `index`, not the last of its step, completes.
int completed_levels(std::int64_t index);

/// Update of a micro-batch that completes `completed` levels, without results: writes gradients (in FP32),
/// loss and metrics into their states, and running statistics into theirs (running_statistics.h).
/// `micro_batches`: of a step, on one rank.
TraceUpdate add_to_gradients(int completed, std::int64_t micro_batches,
                             const Distribution& distribution = {});

/// Update of the last micro-batch. `update`, and the metrics in the graph's results, get the sums over all
/// micro-batches of every rank. Ranks continue the tree: with 2^k micro-batches each, the sum has the bits of
/// one rank that runs all. With sharded states, gradients that `may_be_cut` allows and that are large enough
/// are summed for this rank's part alone.
TraceUpdate with_added_gradients(TraceUpdate update, std::int64_t micro_batches,
                                 const Distribution& distribution = {}, const MayBeCut& may_be_cut = {});

}  // namespace mantissa
