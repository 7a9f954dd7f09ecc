// A graph as the compiled rungs run it: all that nests can hold is expanded and fused, without regard to
// gain.
#pragma once

#include <utility>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/passes/expand.h"
#include "mantissa/passes/fuse.h"
#include "mantissa/passes/simplify.h"
#include "tests/support/passes.h"

namespace mantissa::testing {

/// An input of the graph.
inline Tensor given(Graph& graph, const char* name, const Shape& shape, DType dtype = DType::f32) {
    return {graph, graph.add_input(name, {dtype, shape})};
}

inline Graph fused(const Graph& graph) {
    const Graph expanded = simplify(expand(graph, [](const Graph&, const Node&) { return true; }));
    Fusion fusion = fuse(expanded, testing::any_size());
    verify(fusion.graph, "fuse");
    return std::move(fusion.graph);
}

}  // namespace mantissa::testing
