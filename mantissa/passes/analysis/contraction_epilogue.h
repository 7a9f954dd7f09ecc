// A contraction with its element-wise epilogue, as one node: a fused node whose body starts with the
// contraction. A contraction kernel applies the epilogue to each finished block of sums while it is in a
// cache.
//
//   body: %3 = matmul(%in0, %in1, %in2)  %4 = gelu's primitives of %3  result %3, %4
//   epilogue: %4 = cast(add(%sums, %in2))    %5 = gelu's primitives of %4  result %4, %5
//
// The sums are FP32; the bias and the rounding to the contraction's own type are part of the epilogue, so
// that its results are the body's.
#pragma once

#include <optional>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/analysis/nest.h"

namespace mantissa::inline v0 {

struct ContractionEpilogue {
    NodeId contraction = -1;  ///< in the body
    Graph graph;              ///< its first input: the sums f32, shaped as its output
    /// For the inputs of `graph` after the first: which input of the body each is.
    std::vector<int> operands;
};

/// The contraction in a fused node's body, or -1.
NodeId contraction_of(const Graph& body);

/// Nothing if the body holds no contraction.
std::optional<ContractionEpilogue> contraction_epilogue(const Graph& body);

/// The epilogue as a nest over the rows and columns of the sums, or the reason why a contraction cannot run
/// it block by block.
Expected<Nest> nest_of_epilogue(const Graph& epilogue);

}  // namespace mantissa
