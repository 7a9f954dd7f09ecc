// Values that nests of the forward pass would write for nests of the backward pass alone are computed again
// there, from values that are in memory anyway.
//
//   %2 = cast(%1)  %3 = exp(sub(%2, %m))  ...  (backward) %9 = mul(%8, %3)          %1 bf16, %3 f32
// becomes
//   %2 = cast(%1)  %3 = exp(sub(%2, %m))  ...  (backward) %9 = mul(%8, exp(sub(cast(%1), %m)))
//
// so that %3 is never stored. Results of reductions are not computed again but kept: they are small. Done
// where it costs less than the memory traffic that it saves and fewer bytes live from one pass to the other.
// Recomputation that costs time to save memory is asked for by name (passes/recompute.h).
#pragma once

#include <cstdint>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/analysis/fuse_groups.h"

namespace mantissa::inline v0 {

struct NestRecomputation {
    Graph graph;
    int values = 0;                    ///< computed again
    std::int64_t bytes_not_kept = 0;   ///< from one pass to the other
    std::int64_t bytes_not_moved = 0;  ///< written in one pass and read in the other
};

/// `grouping`: how the graph would be fused as it is; `instructions_per_byte`: as in FusionCosts.
NestRecomputation recompute_in_nests(const Graph& graph, const Grouping& grouping,
                                     double instructions_per_byte);

}  // namespace mantissa
