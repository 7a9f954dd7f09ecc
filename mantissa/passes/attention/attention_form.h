// Recognises one attention around a softmax or an exponential; match_attention tries each of a graph.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "mantissa/base/expected.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/analysis/uses.h"
#include "mantissa/passes/attention/axis_map.h"
#include "mantissa/passes/attention/pair_reader.h"
#include "mantissa/passes/attention/softmax_algebra.h"

namespace mantissa::inline v0 {

/// Queries, keys or values: a value times a factor, taken through views and casts, outermost last.
struct AttentionOperand {
    Value base = {};
    double factor = 1;
    std::vector<NodeId> views = {};
    /// Axes of the value after the views: atoms of the softmax's, and of the head size, named `head_axis`.
    AxisMap axes = {};
    static constexpr int head_axis = 1000;
};

/// A score that is not the scaled product alone, in terms of the product times the form's scale.
struct ScoreForm {
    std::shared_ptr<const PairExpressions> expressions;
    PairId score = -1;
    PairId visible = -1;  ///< but for the causal mask
    PairId multiplier = -1;
    std::optional<PairId> sink = {};    ///< the extra logit, which is no key's
    std::vector<PairOperand> operands;  ///< by the indices of leaves
    std::vector<PairRandom> randoms;
};

/// A value that is read elsewhere and is the log-sum-exp of the scores.
struct LogSumExp {
    Value value;
    AxisMap axes;
};

struct AttentionForm {
    NodeId root = -1;  ///< the replaced node: the product with the values, or its normalisation
    AttentionOperand q, k, v;
    AxisMap output;               ///< axes of the root
    std::vector<int> batch_axes;  ///< of the softmax, in order
    int query_axis = -1;          ///< of the softmax; -1 where there is one query and no axis for it
    int key_axis = -1;
    Shape shape;  ///< of the softmax
    std::int64_t queries = 1, keys = 1, head_size = 1;
    DType dtype = DType::f32;  ///< the widest of the operands'
    bool causal = false;
    double scale = 1;
    std::optional<ScoreForm> score = {};  ///< none: the scaled product
    std::vector<LogSumExp> log_sums = {};
    std::int64_t group = 1;   ///< heads of queries in a row that share a head of keys and values
    std::string copies = {};  ///< why keys or values that were repeated are read as such; empty: they are not
    std::set<NodeId> replaced;  ///< nodes that nothing else reads, the root included
};

/// The result of a search for attention around a softmax or an exponential.
struct AttentionSearch {
    Expected<AttentionForm> form;
    NodeId product = -1;  ///< of the weights with the values; -1: not found
    /// Whether the node's values are summed over an axis, or meet a product of queries and keys.
    bool is_softmax = false;
};

/// Facts of a graph before the search.
struct SearchedGraph {
    const Graph& graph;
    const Uses& uses;
    const std::vector<bool>& live;  ///< by node; a node that nobody reads is not live
    const ValueNumbers& numbers;
};

/// The attention that a node, a softmax or an exponential, is part of, or why it is part of none.
AttentionSearch attention_around(const SearchedGraph& searched, NodeId core);

}  // namespace mantissa
