// The nodes of a graph that go into one nest: the choice that fuse makes, and its costs.
//
// Nodes are taken in the graph's order. Each joins the groups that make its operands, or read them too, where
// the whole is still a nest and no path leads out of it and back.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/target.h"
#include "mantissa/passes/analysis/uses.h"
#include "mantissa/passes/pass_refusal.h"

namespace mantissa::inline v0 {

using Nodes = std::vector<NodeId>;  // in the graph's order

/// The values that cross a group's border.
struct Border {
    std::vector<Value> inputs;     ///< values from outside, each once, in order of first use
    std::vector<Value> outputs;    ///< values that outside reads; never reshapes, which outside makes again
    std::vector<NodeId> reshapes;  ///< members that outside reads
};

class Grouping {
  public:
    Grouping(const Graph& graph, const FusionCosts& costs, std::vector<PassRefusal>& refused);

    /// Some are empty: groups that were joined with others, or were not worth a kernel.
    const std::vector<Nodes>& groups() const { return groups_; }
    /// -1: none.
    int group_of(NodeId id) const { return id < 0 ? -1 : group_of_[id]; }
    const Uses& uses() const { return uses_; }
    /// Whether the value is made of constants and counters alone.
    bool from_source(Value value) const { return source_operations_[value.node] >= 0; }
    Border border(const Nodes& group) const;
    /// Bytes saved by running the group as one kernel instead of node by node.
    std::int64_t bytes_saved(const Nodes& group, const Border& border) const;

  private:
    void run();
    void refuse(NodeId id, std::string reason);
    void refuse_alone(NodeId id, std::string reason);
    void visit(NodeId id);
    static Nodes merged(const Nodes& a, const Nodes& b);
    /// Joins whole groups of two stages that share operands or read one the other's values, as the loss and
    /// its gradient do, where no node lies between them.
    void join_stages();
    bool any_recomputed(const Nodes& group) const;
    bool joins_two_walks(const Nodes& group) const;
    std::set<int> groups_of_another_stage(NodeId id) const;
    /// Counts the operations of a node made of constants and counters alone; false if it is not one.
    bool note_source(NodeId id);
    /// Groups of the node's own stage that make its operands or read them too; the groups that save most
    /// first. Not of another stage: a value that the backward pass computes for itself would be written in
    /// the forward pass and read again, instead of made where it is used.
    std::vector<int> groups_beside(NodeId id) const;
    std::string nest_reason(const Nodes& group) const;
    std::string refuse_group(const Nodes& group);
    /// Whether a path leads out of a group and back in, with every other group taken as one node.
    bool depends_on_itself(const Nodes& group);
    void drop_unless_worth_it(Nodes& group);

    const Graph& graph_;
    const FusionCosts& costs_;
    std::vector<PassRefusal>& refused_;
    const Uses uses_;
    std::vector<int> source_operations_;  // by node; -1: it reads something
    std::vector<int> group_of_;           // by node; -1: none
    std::vector<Nodes> groups_;           // empty: joined with a later one
    std::vector<int> stamp_;              // by node: the search that saw it last
    int now_ = 0;
    NodeId last_grouped_ = -1;  // no group has a later node, so no path through one leads back
};

}  // namespace mantissa
