// Appends the backward pass: the gradient of the loss by every parameter.
//
//   %1 = matmul(%x, %w), %2 = cross_entropy(%1, %t)
// is followed by
//   %3 = cross_entropy_grad(1, %1, %t, %2.1), %4 = matmul(%x, %3) {transpose_a}        the gradient of w
#pragma once

#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0 {

/// A parameter and its gradient, of one type.
struct ParameterGradient {
    int state = 0;  ///< index into the graph's states
    Tensor gradient;
    bool is_shard = false;  ///< the gradient is this rank's part of it alone (ranks/shard.h)
};

/// `loss` is a scalar. Frozen parameters have no gradient; a parameter on which the loss does not depend has
/// a gradient of zeros. `seed`, a scalar of the loss's type, multiplies every gradient; empty stands for 1.
std::vector<ParameterGradient> differentiate(Graph& graph, Tensor loss, Tensor seed = {});

}  // namespace mantissa
