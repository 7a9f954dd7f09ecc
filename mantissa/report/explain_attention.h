// The report of `explain` on each attention.
#pragma once

#include "mantissa/graph/graph.h"
#include "mantissa/report/explain.h"

namespace mantissa::inline v0 {

/// Explains a node `attention`.
ExplainedAttention explain_attention(const Graph& graph, const Node& node);

}  // namespace mantissa
