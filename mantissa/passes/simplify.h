// Removes nodes that change no value: unused nodes, repeated nodes, and operations that do nothing.
//
//   %1 = reshape(%x), %2 = reshape(%1), %3 = mul(%2, 1), %4 = add(%3, %y), %5 = add(%3, %y)
// becomes
//   %1 = reshape(%x), %2 = add(%1, %y)        with %2 standing for both sums
//
// Exact: every value that stays has the same bits. So x * 1 goes, and x + 0 stays, since -0 + 0 is +0. A
// result or an update that was computed stays computed: where x is an input or a state, x * 1 as a result
// stays.
#pragma once

#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

/// Whether equal nodes of the forward and the backward pass are made one. A value that the backward pass
/// computes again it need not read, nor the forward pass write.
enum class MergeStages : bool { no, yes };

Graph simplify(const Graph& graph, MergeStages merge = MergeStages::yes);

}  // namespace mantissa
