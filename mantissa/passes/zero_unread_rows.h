// Sets rows of activations to zero that the loss does not depend on, such as padding, where matrices are
// multiplied with them. The products of the forward pass then leave these rows out.
//
//   %5 = layer_norm(%4, ...)                      f32[B, T, C]
//   %6 = matmul(%5, %w)
//   %7 = attention(%6, %keep) {score: visible where keep[b, s] > 0}
//   %9 = cross_entropy(..., %ids) {ignore_negative}
// becomes
//   %5 = layer_norm(%4, ...),  %s = select(keep > 0 or ids >= 0, %5, 0)
//   %6 = matmul(%s, %w) {leaves_zeros_out}
//   ...
//
// A row is read unless all ways from it to the loss pass an operation that does not look at it. Such are
// attention that hides it as a key from every query, a loss that ignores it, and a product with a mask that
// is zero there, as in a mean over tokens. Other operations between make a row from the same row of their
// operands. The loss is the same function of the parameters, so gradients are, too: for finite numbers.
#pragma once

#include <span>

#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

/// `kept`: as in lay_out_attention. Rows are zeroed by conditions that follow from inputs alone, and not
/// behind products, where no kernel would write the zeros beside.
Graph zero_unread_rows(const Graph& graph, std::span<Value> kept);

}  // namespace mantissa
