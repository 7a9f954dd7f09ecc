// Derived state: values that a run would compute from parameters alone are computed when the parameters
// change, not at every use.
//
//   %1: bf16 = cast(%w), %2 = matmul(%x, %1), ..., %9 = adamw(%w, ...), update w = %9.0
// becomes
//   %2 = matmul(%x, %bf16.w), ..., %9 = adamw(%w, ..., %bf16.w), update w = %9.0, update bf16.w = %9.3
// with a second graph that makes bf16.w from w:
//   %1: bf16 = cast(%w), update bf16.w = %1
//
// A cast of a padded parameter (passes/pad.h) becomes a padded derived state: cast(pad(%w)) is pad(%bf16.w).
//
// Only reads before the parameter's update are replaced; the second graph runs at start and after a load.
// Every value has the bits that it had. A parameter is rounded once, however many nodes read it.
#pragma once

#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

struct LaidOut {
    Graph graph;  ///< reads derived states; where it updates their parameters, updates them, too
    Graph
        derive;  ///< makes every derived state of `graph` from the parameters; of no states if there are none
};

/// Casts of parameters, quantised parameters and parameters rounded in blocks become states of the kind
/// `derived`, unless the run gives them as results or updates.
LaidOut lay_out(const Graph& graph);

}  // namespace mantissa
