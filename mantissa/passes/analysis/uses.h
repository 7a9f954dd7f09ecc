// Readers of each value of a graph, for passes that look for patterns.
#pragma once

#include <span>
#include <vector>

#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

/// Nodes that read a value or a node, once for each operand; results and updates count as node -1.
class Uses {
  public:
    /// `kept`: values that stay though nothing in the graph reads them.
    explicit Uses(const Graph& graph, std::span<const Value> kept = {});
    const std::vector<NodeId>& of(Value value) const {
        return uses_[static_cast<std::size_t>(value.node)][static_cast<std::size_t>(value.output)];
    }
    /// The readers of all its outputs.
    const std::vector<NodeId>& of(NodeId id) const { return uses_of_node_[static_cast<std::size_t>(id)]; }

  private:
    void add(Value value, NodeId user);
    std::vector<std::vector<std::vector<NodeId>>> uses_;  // by node and output
    std::vector<std::vector<NodeId>> uses_of_node_;
};

/// By node: whether anything that a run gives, or that is kept, depends on it.
std::vector<bool> live_nodes(const Graph& graph, std::span<const Value> kept = {});

/// By node: whether a result or an update of the run lies in its memory, as it is or as a view of it.
std::vector<bool> holds_what_a_run_gives(const Graph& graph);

}  // namespace mantissa
