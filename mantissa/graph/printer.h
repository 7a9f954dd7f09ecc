// A graph as text for people, one node a line. Golden tests hold graphs in this form, too.
#pragma once

#include <string>

#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

/// A line a node, as in
///   %12: f32[4, 64, 128] = layer_norm(%10, %h.0.ln_1.weight, %h.0.ln_1.bias) {epsilon=1e-05}  # h.0.ln_1
/// then results and updates. Inputs and states are called by their names.
std::string print(const Graph& graph);

/// The one line of a node.
std::string print(const Graph& graph, NodeId id);

}  // namespace mantissa
