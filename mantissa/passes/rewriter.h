// Shared by passes that rebuild a graph: a new graph that grows beside the old one.
#pragma once

#include <vector>

#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

/// Copies `source` node by node in order; the pass decides for each node which value replaces it. Inputs and
/// states are always kept, in their order, so that their indices stay good.
class Rewriter {
  public:
    /// Whether a value's replacement may have another storage type; its shape stays in any case.
    enum class Types : std::uint8_t { stay, may_change };
    explicit Rewriter(const Graph& source, Types types = Types::stay);

    Graph& target() { return target_; }
    /// The value that stands for a value of the source. It must have been placed.
    Value map(Value value) const;
    std::vector<Value> map(const std::vector<Value>& values) const;
    bool placed(Value value) const;

    /// Copies a node, with its operands mapped.
    void copy(NodeId id);
    /// Lets `value`, of the target, stand for the first (or only) output of a node.
    void place(Value source, Value value);
    /// Lets the outputs of a node of the target stand for all of a node's.
    void place(NodeId source, NodeId made);

    /// Copies results and updates and hands over the new graph.
    Graph finish();

  private:
    const Graph& source_;
    Types types_;
    Graph target_;
    std::vector<std::vector<Value>> placed_;  // by node and output; node -1: not placed
};

}  // namespace mantissa
