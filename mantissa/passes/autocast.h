// Autocast: rewrites a forward pass so that each operation runs in the formats that a policy gives its class.
//
//   %1: f32 = matmul(%x, %w), %2: f32 = softmax(%1)
// becomes, under bf16,
//   %1 = cast(%x) {bf16}, %2 = cast(%w) {bf16}, %3: bf16 = matmul(%1, %2), %4 = cast(%3) {f32}, %5: f32 =
//   softmax(%4)
//
// It runs before differentiation, so that the gradient of a BF16 multiply is a BF16 multiply by itself. The
// classes are columns of the op table and follow the lists that CUDA users know; docs/numerics.md has the
// table. FP64 and integers are never cast. Each node that a rule decided carries the rule's name in its
// origin.
#pragma once

#include "mantissa/graph/graph.h"
#include "mantissa/passes/policy.h"

namespace mantissa::inline v0 {

/// `graph` holds a forward pass. `loss` is a value of it; its new place is returned in `loss`.
Graph autocast(const Graph& graph, const Policy& policy, Value& loss);

}  // namespace mantissa
