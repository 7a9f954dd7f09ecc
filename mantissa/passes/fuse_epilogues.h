// Puts element-wise work on the output of a contraction into the contraction's epilogue. The contraction and
// the fused node that reads it become one fused node, whose body starts with the contraction.
//
//   %3 = matmul(%x, %w, %bias)  %4 = fused(%3) {body = gelu}
// becomes
//   %3 = fused(%x, %w, %bias) {body = matmul, gelu}
//
// The contraction's result is a second output where other nodes, such as a gradient, read it. An epilogue
// that reduces along rows stays by itself: an epilogue sees blocks of some rows and columns.
#pragma once

#include "mantissa/graph/graph.h"
#include "mantissa/passes/fuse.h"

namespace mantissa::inline v0 {

/// `graph`: fused already.
Fusion fuse_epilogues(const Graph& graph, const Machine& machine);

}  // namespace mantissa
