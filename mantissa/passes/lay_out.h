// Derived state: what a run would compute from parameters alone is computed when they change, not at every
// use.
//
//   %1: bf16 = cast(%w), %2 = matmul(%x, %1), ..., %9 = adamw(%w, ...), update w = %9.0
// becomes
//   %2 = matmul(%x, %bf16.w), ..., %9 = adamw(%w, ..., %bf16.w), update w = %9.0, update bf16.w = %9.3
// with a second graph that makes bf16.w from w:
//   %1: bf16 = cast(%w), update bf16.w = %1
//
// A cast of a padded parameter (passes/pad.h) becomes a padded derived state: cast(pad(%w)) is pad(%bf16.w).
//
// Only what the run reads before it updates the parameter is meant; the second graph runs at start and after
// a load. Every value has the bits that it had. A parameter is rounded once, however many read it.
#pragma once

#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

struct LaidOut {
    Graph graph;  ///< reads derived states; where it updates their parameters, updates them, too
    Graph
        derive;  ///< makes every derived state of `graph` from the parameters; of no states if there are none
};

/// Casts of parameters, their quantised forms and those rounded in blocks become states of the kind
/// `derived`, unless the run gives them as results or updates.
LaidOut lay_out(const Graph& graph);

}  // namespace mantissa
