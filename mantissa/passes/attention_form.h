// Recognises one attention around a softmax: what match_attention asks of every softmax of a graph.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "mantissa/base/or_reason.h"
#include "mantissa/passes/axis_map.h"
#include "mantissa/passes/position_pattern.h"
#include "mantissa/passes/softmax_form.h"
#include "mantissa/passes/uses.h"

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

struct AttentionForm {
    NodeId root = -1;  ///< the product with the values, which attention replaces
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
    std::int64_t group = 1;   ///< heads of queries in a row that share a head of keys and values
    std::string copies = {};  ///< why keys or values that were repeated are read as such; empty: they are not
    std::set<NodeId> replaced;  ///< nodes that nothing else reads, the root included
};

/// The attention that the softmax is part of, or why it is part of none.
OrReason<AttentionForm> attention_around(const Graph& graph, const Uses& uses, PatternReader& patterns,
                                         const SoftmaxForm& softmax);

}  // namespace mantissa
