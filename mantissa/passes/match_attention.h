// Finds attention by its algebra: a softmax over the keys of a scaled product of queries and keys, masked or
// not, times values; whatever it was spelled with.
//
//   %1 = matmul(%q, %k) {transpose_b}, %2 = mul(%1, 0.125), %3 = less_equal(keys, queries),
//   %4 = select(%3, %2, -infinity), %5 = softmax(%4), %6 = matmul(%5, %v)
// becomes
//   %1 = attention(%q, %k, %v) {causal=true, scale=0.125}
//
// Keys and values that were repeated for heads of queries are taken from before that. A softmax that is not
// part of attention stays as it was, with a reason.
#pragma once

#include <span>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/pass_refusal.h"

namespace mantissa::inline v0 {

struct AttentionMatch {
    Graph graph;
    int matched = 0;
    std::vector<PassRefusal> refused;  ///< softmaxes that stay, and repetitions of keys and values
};

/// `kept`: values that stay though nothing in the graph reads them, such as the loss; each is replaced by
/// where it is found afterwards.
AttentionMatch match_attention(const Graph& graph, std::span<Value> kept = {});

}  // namespace mantissa
