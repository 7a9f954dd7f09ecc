// What `explain` says of each attention.
#pragma once

#include "mantissa/graph/graph.h"
#include "mantissa/report/explain.h"

namespace mantissa::inline v0 {

/// Of a node `attention`.
ExplainedAttention explain_attention(const Graph& graph, const Node& node);

}  // namespace mantissa
