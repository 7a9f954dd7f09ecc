#include "mantissa/passes/recompute_in_nests.h"

#include <algorithm>
#include <map>
#include <set>

#include "mantissa/base/function_ref.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/analysis/nest.h"
#include "mantissa/passes/rewriter.h"
#include "mantissa/passes/simplify.h"

namespace mantissa::inline v0 {

namespace {

/// The nodes that computing a value again takes.
struct Cone {
    std::set<NodeId> inside;  ///< nodes that are computed again
    std::set<Value> leaves;   ///< their operands, without counters and constants
    int instructions = 0;     ///< for sixteen lanes
};

class NestRecompute {
  public:
    NestRecompute(const Graph& graph, const Grouping& grouping, double instructions_per_byte)
        : graph_(graph),
          grouping_(grouping),
          uses_(grouping.uses()),
          instructions_per_byte_(instructions_per_byte) {}

    NestRecomputation run() {
        NestRecomputation done;
        for (NodeId id = 0; id < graph_.end(); ++id) consider(id, done);
        done.graph = done.values == 0 ? graph_ : simplify(rewrite(), MergeStages::no);
        return done;
    }

  private:
    bool forward(NodeId id) const { return graph_.node(id).origin.stage == Stage::forward; }
    bool is_reshape(NodeId id) const { return graph_.node(id).op->name == "reshape"; }
    std::int64_t bytes(Value value) const { return graph_.type(value).bytes(); }

    /// The value that a chain of reshapes views.
    Value root(Value value) const {
        while (is_reshape(value.node)) value = graph_.node(value.node).inputs[0];
        return value;
    }

    /// Adds the readers of a value, as it is or reshaped.
    void add_readers(NodeId id, std::set<NodeId>& readers) const {
        for (NodeId user : uses_.of(id)) {
            if (user >= 0 && is_reshape(user))
                add_readers(user, readers);
            else if (user >= 0)
                readers.insert(user);
        }
    }

    bool read_outside(NodeId id) const {
        return std::ranges::any_of(
            uses_.of(id), [&](NodeId user) { return user < 0 || (is_reshape(user) && read_outside(user)); });
    }

    /// Groups of the backward pass that read the value. `elsewhere`: it is read by others, too, its own group
    /// apart, and so lies in memory anyway.
    std::set<int> reading_groups(NodeId id, bool& elsewhere) const {
        std::set<int> groups;
        std::set<NodeId> readers;
        add_readers(id, readers);
        elsewhere = read_outside(id);
        for (NodeId reader : readers) {
            const int group = grouping_.group_of(reader);
            if (group >= 0 && group == grouping_.group_of(id)) continue;
            if (group >= 0 && !forward(reader))
                groups.insert(group);
            else
                elsewhere = true;
        }
        return groups;
    }

    bool in_memory(NodeId id) const {
        if (grouping_.group_of(id) < 0) return true;
        bool elsewhere = false;
        reading_groups(id, elsewhere);
        return elsewhere;
    }

    /// Whether the backward pass reads a value in any case.
    bool kept(Value value) const {
        if (is_from_outside(graph_.node(value.node))) return true;
        std::set<NodeId> readers;
        add_readers(value.node, readers);
        return std::any_of(readers.begin(), readers.end(), [&](NodeId reader) { return !forward(reader); });
    }

    /// Whether a value is read where it is needed, or made of constants, rather than computed again.
    bool is_leaf(Value value) const {
        const Value made = root(value);
        return grouping_.from_source(value) || grouping_.from_source(made) ||
               reduces(graph_, graph_.node(made.node)) != Reduces::nothing || in_memory(made.node);
    }

    void grow(Cone& cone, NodeId id) const {
        if (!cone.inside.insert(id).second) return;
        cone.instructions += nest_instructions(graph_.node(id).op->name);
        for (const Value& input : graph_.node(id).inputs) {
            const Value made = root(input);
            if (!is_leaf(made))
                grow(cone, made.node);
            else if (!grouping_.from_source(made))
                cone.leaves.insert(made);
        }
    }

    void consider(NodeId id, NestRecomputation& done) {
        if (!forward(id) || is_reshape(id) || grouping_.group_of(id) < 0 ||
            reduces(graph_, graph_.node(id)) != Reduces::nothing)
            return;
        bool elsewhere = false;
        const std::set<int> readers = reading_groups(id, elsewhere);
        if (elsewhere || readers.empty()) return;
        Cone cone;
        grow(cone, id);
        const std::int64_t size = bytes({id, 0});
        std::int64_t newly_kept = 0, moved = 0;
        for (const Value& leaf : cone.leaves) {
            if (!kept(leaf)) newly_kept += bytes(leaf);
            if (!in_memory(leaf.node)) moved += bytes(leaf);  // written for this
            for (int group : readers) moved += reads(group, leaf) ? 0 : bytes(leaf);
        }
        const auto times = static_cast<std::int64_t>(readers.size());
        const std::int64_t saved = (1 + times) * size - moved;
        const std::int64_t vectors = graph_.type({id, 0}).shape.elements() / 16;
        const auto instructions = static_cast<double>(times * vectors * cone.instructions);
        if (newly_kept >= size || instructions > instructions_per_byte_ * static_cast<double>(saved)) return;
        chosen_.insert(id);
        ++done.values;
        done.bytes_not_kept += size - newly_kept;
        done.bytes_not_moved += saved;
    }

    bool reads(int group, Value value) const {
        const Nodes& members = grouping_.groups()[group];
        return std::any_of(members.begin(), members.end(), [&](NodeId member) {
            const std::vector<Value>& inputs = graph_.node(member).inputs;
            return std::any_of(inputs.begin(), inputs.end(),
                               [&](Value input) { return root(input) == value; });
        });
    }

    Graph rewrite() {
        Rewriter rewriter(graph_);
        for (NodeId id = 0; id < graph_.end(); ++id) {
            const auto again = [&](Value input) { return chosen_.contains(root(input).node); };
            const Node& node = graph_.node(id);
            if (forward(id) || std::none_of(node.inputs.begin(), node.inputs.end(), again)) {
                rewriter.copy(id);
                continue;
            }
            rewriter.place(id, copy(rewriter, id, node.origin.stage, again));
        }
        return rewriter.finish();
    }

    /// A node of a pass after the forward pass; operands for which `again` holds are computed before it.
    NodeId copy(Rewriter& rewriter, NodeId id, Stage stage, FunctionRef<bool(Value)> again) {
        const Node& node = graph_.node(id);
        std::vector<Value> inputs;
        for (const Value& input : node.inputs)
            inputs.push_back(again(input) ? computed_again(rewriter, input.node, stage)
                                          : rewriter.map(input));
        Origin origin = node.origin;
        origin.stage = stage;
        const OriginScope scope(rewriter.target(), std::move(origin));
        return rewriter.target().add(node.op->name, std::move(inputs), node.attributes);
    }

    Value computed_again(Rewriter& rewriter, NodeId id, Stage stage) {
        if (const auto known = copies_.find(id); known != copies_.end()) return known->second;
        const auto again = [&](Value input) { return !is_leaf(input); };
        const Value made{copy(rewriter, id, stage, again), 0};
        return copies_[id] = made;
    }

    const Graph& graph_;
    const Grouping& grouping_;
    const Uses& uses_;
    const double instructions_per_byte_;
    std::set<NodeId> chosen_;         // nodes that are computed again
    std::map<NodeId, Value> copies_;  // by node of the source
};

}  // namespace

NestRecomputation recompute_in_nests(const Graph& graph, const Grouping& grouping,
                                     double instructions_per_byte) {
    return NestRecompute(graph, grouping, instructions_per_byte).run();
}

}  // namespace mantissa
