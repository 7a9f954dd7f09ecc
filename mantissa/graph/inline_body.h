// Puts the nodes of a body in place of the node that holds it.
#pragma once

#include <span>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0 {

/// The origin that the nodes are given: the one of the graph where they are put, or their own.
enum class Origins : std::uint8_t { of_place, of_body };

/// Adds the body's nodes to `graph` with these for its inputs, one for each; gives its results in order. An
/// empty tensor stands for an input that no result needs: nodes that depend on it are left out.
std::vector<Tensor> inline_body(Graph& graph, const Graph& body, std::span<const Tensor> inputs,
                                Origins origins = Origins::of_place);

}  // namespace mantissa
