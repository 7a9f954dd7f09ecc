// Finds the cross-entropy of a linear layer's logits, with its gradients, and makes them one operation.
// Logits exist in it for a chunk of tokens at a time, and nothing is computed twice.
//
//   %1 = matmul(%x, %w) {transpose_b}, %2 = cross_entropy(%1, %t), %3 = cross_entropy_grad(%s, %1, %t, %2.1),
//   %4 = matmul(%3, %w), %5 = matmul(%3, %x) {transpose_a}
// becomes
//   %1 = linear_cross_entropy(%x, %w, %t, %s)      %1.1 replaces %4, %1.2 replaces %5
//
// It runs after differentiation. Casts and reshapes may stand between. Where nobody asks for the gradient
// of w, the operation is told that w is frozen. A forward pass alone becomes the operation without a seed. A
// cross-entropy that does not fit stays as it was, with a reason.
#pragma once

#include <span>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/pass_refusal.h"

namespace mantissa::inline v0 {

struct ChunkedLoss {
    Graph graph;
    int matched = 0;
    std::vector<PassRefusal> refused;
};

/// `kept`: values that stay though nothing in the graph reads them, such as the loss and the gradients; each
/// becomes its value in the new graph.
ChunkedLoss fuse_linear_cross_entropy(const Graph& graph, std::span<Value> kept = {});

}  // namespace mantissa
