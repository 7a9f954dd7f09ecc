// Finds attention by its algebra: a softmax over the keys of any function f of the scaled product of queries
// and keys, of positions and of operands, under any mask, times values, in any spelling.
//
//   %1 = matmul(%q, %k) {transpose_b}, %2 = mul(%1, 0.125), %3 = less_equal(keys, queries),
//   %4 = select(%3, %2, -infinity), %5 = softmax(%4), %6 = matmul(%5, %v)
// becomes
//   %1 = attention(%q, %k, %v) {causal=true, scale=0.125}
//
// Whatever is more than scale and causal mask becomes the operation's `score`
// (mantissa/graph/attention_score.h). An extra logit becomes a factor sigmoid(log-sum-exp - logit) of the
// result.
//
// Keys and values that were repeated for heads of queries are read without the repetition. A softmax that is
// not part of attention stays as it was, with a reason.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/pass_refusal.h"

namespace mantissa::inline v0 {

struct AttentionMatch {
    Graph graph;
    int matched = 0;
    std::vector<PassRefusal> refused;  ///< softmaxes that stay, and repetitions of keys and values
};

/// Whether an attention may stand in the graph; else the softmax stays as it is, with this reason. Empty: it
/// may.
using AcceptAttention = std::function<std::string(const Graph&, const Node& attention)>;

/// `kept`: values that stay though nothing in the graph reads them, such as the loss; each becomes its value
/// in the new graph.
AttentionMatch match_attention(const Graph& graph, std::span<Value> kept = {},
                               const AcceptAttention& accept = {});

}  // namespace mantissa
