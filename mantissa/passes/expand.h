// Replaces composites by their definitions, and leaves out nodes that nothing needs, such as the gradient of
// a constant.
//
//   %2 = softmax(%1)
// becomes
//   %2 = max(%1), %3 = sub(%1, %2), %4 = exp(%3), %5 = sum(%4), %6 = div(%4, %5)
#pragma once

#include "mantissa/base/function_ref.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

/// Replaces every composite node for which `wanted` holds, and the composites that its definition brings.
Graph expand(const Graph& graph, FunctionRef<bool(const Graph&, const Node&)> wanted);

}  // namespace mantissa
