// Lets attention read queries, keys and values where they lie, and write its result where it is wanted.
// Movements that only bring heads into the order [B, H, T, D] and back are absorbed by the operation's layout
// (graph/attention_layout.h).
//
//   %1 = reshape(%qkv) [B, T, 3, H, D], %2 = transpose(%1) [3, B, H, T, D], %3 = split(%2),
//   %4 = attention(%3.0, %3.1, %3.2), %5 = transpose(%4) [B, T, H, D]
// becomes
//   %1 = reshape(%qkv) [B, T, 3, H, D], %5 = attention(%1) {operands=qkv:btphd, result=bthd}
//
// Found by algebra: any chain of reshapes, transpositions and cuts into equal parts that keeps axes whole,
// with the elements of a head side by side. It runs before differentiation, so gradients have the same
// layout. A movement that stays has a reason. Every value keeps its bits.
#pragma once

#include <span>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/pass_refusal.h"

namespace mantissa::inline v0 {

struct LaidOutAttention {
    Graph graph;
    std::vector<PassRefusal> refused;  ///< movements beside attention that stay
};

/// `kept`: values that stay though nothing in the graph reads them, such as the loss; each becomes its value
/// in the new graph.
LaidOutAttention lay_out_attention(const Graph& graph, std::span<Value> kept = {});

}  // namespace mantissa
