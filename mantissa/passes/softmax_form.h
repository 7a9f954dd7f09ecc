// Finds softmax: the operation, or its definition written out over any one axis.
#pragma once

#include <optional>
#include <set>

#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

struct SoftmaxForm {
    Value scores = {};            ///< what it is taken of
    NodeId last = -1;             ///< the node whose output it is
    int axis = 0;                 ///< over which it runs
    std::set<NodeId> nodes = {};  ///< that compute it
};

/// The softmax whose output is that of this node, if it is one. Of the definition written out, the maximum
/// may be left out.
std::optional<SoftmaxForm> softmax_at(const Graph& graph, NodeId id);

}  // namespace mantissa
