// Quantises a forward pass for inference: products with a parameter's matrix become products of whole
// numbers.
//
//   %1 = matmul(%x, %w, %b) {transpose_b}
// becomes, for s8,
//   %1: s8, %2 = quantize_weight(%w) {format=s8}, %3: f32 = quantized_matmul(%x, %1, %2, %b) {multiply=s8}
//
// It runs before autocast, which gives all other nodes their formats: embeddings, norms, softmax and the
// products of attention stay as they are under that policy. Each node that it makes carries the rule's name.
#pragma once

#include <span>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/autocast.h"

namespace mantissa::inline v0 {

/// `graph` holds a forward pass; `kept` are values of it, whose new places are returned. The format is s8 or
/// s4.
Graph quantize(const Graph& graph, const Policy& policy, std::span<Value> kept);

}  // namespace mantissa
