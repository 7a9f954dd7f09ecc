// Counts an operation's nodes in a graph.
#pragma once

#include <string_view>

#include "mantissa/graph/graph.h"

namespace mantissa::testing {

inline int count(const Graph& graph, std::string_view op) {
    int nodes = 0;
    for (std::size_t id = 0; id < graph.size(); ++id)
        nodes += graph.node(static_cast<NodeId>(id)).op->name == op;
    return nodes;
}

}  // namespace mantissa::testing
