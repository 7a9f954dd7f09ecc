// Training below sixteen bits: operands of linear layers' products become values of a shorter format.
//
//   %3: bf16 = matmul(%x, %w) {transpose_b}
// becomes, under mxfp8,
//   %1: bf16 = round_blocks(%x) {element=e4m3, axis=1, block=32, rule=up}, %2 = round_blocks(%master) {...},
//   %3: bf16 = matmul(%1, %2) {transpose_b}
//
// It runs after differentiation: each of a layer's three products (Y, dX, dW) has its operands rounded along
// its own depth, so X, W and dY are rounded twice, both times from the tensor as it was. A weight is rounded
// from the parameter itself, not from its BF16 copy, once a step where `lay_out` runs.
//
// BF16 stay: the head, which is the fused loss or else the last linear layer; a first layer, which reads an
// input; the products of attention, convolutions and whatever stands in a loop's body. Each of these that is
// found has its line in `kept`.
#pragma once

#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/pass_refusal.h"
#include "mantissa/passes/policy.h"

namespace mantissa::inline v0 {

struct RoundedOperands {
    Graph graph;
    std::vector<PassRefusal> kept;  ///< products that stay as they were, and why
};

/// `policy` has blocks.
RoundedOperands round_operands(const Graph& graph, const Policy& policy);

}  // namespace mantissa
