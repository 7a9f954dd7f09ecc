// Rewrites the bodies of loops (graph/scan.h), each a graph of its own:
//
//   scan(h, x, w) {body={...}}   becomes   scan(h, x, w) {body={what `rewrite` makes of it}}
//
// Outputs that nobody reads go: a layer may give some for its gradient alone. States stay.
#pragma once

#include "mantissa/base/function_ref.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

/// Equal bodies are rewritten once.
Graph with_bodies(const Graph& graph, FunctionRef<Graph(const Graph& body)> rewrite);

}  // namespace mantissa
