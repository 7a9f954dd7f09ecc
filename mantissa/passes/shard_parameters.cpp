#include "mantissa/passes/shard_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/passes/analysis/uses.h"
#include "mantissa/passes/distribute.h"
#include "mantissa/passes/rewriter.h"
#include "mantissa/ranks/shard.h"

namespace mantissa::inline v0 {

namespace {

State part_of_state(State state, int ranks) {
    state.shard_of = state.type.shape;
    state.type.shape = {shard_elements(state.type.shape.elements(), ranks)};
    state.zero_rows = 0;  // only values that are read need them
    return state;
}

/// Whether nobody reads a node, as a pass may have left one behind.
bool is_unread(const Uses& uses, NodeId id) { return uses.of({id, 0}).empty(); }

/// A parameter, the nodes of its new value, and the copy that alone is read by the run.
struct Master {
    Value updated;   // a part
    Value gathered;  // on its way: an output of all_gather_start
    Value arrived;   // an output of all_gather_wait
    NodeId copy = -1;
};

class PartsRecognition {
  public:
    explicit PartsRecognition(const Graph& graph) : graph_(graph), uses_(graph) {}

    /// By index of the state.
    std::map<int, Master> run() const {
        std::map<int, Master> masters;
        for (const Update& update : graph_.updates()) {
            const State& state = graph_.state(update.state);
            if (state.kind != State::Kind::parameter ||
                graph_.node(update.value.node).op->name != "all_gather_wait")
                continue;
            Master master{.updated = {}, .gathered = {}, .arrived = update.value};
            master.gathered = graph_.node(master.arrived.node).inputs[master.arrived.output];
            master.updated = graph_.node(master.gathered.node).inputs[master.gathered.output];
            master.copy = only_copy(master.arrived);
            if (master.copy >= 0 && is_read_sharded(state)) masters[update.state] = master;
        }
        return masters;
    }

  private:
    bool is_read_sharded(const State& state) const {
        for (const NodeId reader : uses_.of({state.node, 0}))
            if (reader < 0 || (graph_.node(reader).op->name != "own_shard" && !is_unread(uses_, reader)))
                return false;
        return true;
    }

    /// The cast that alone reads a parameter's new value, besides its update; -1: there is none, or more.
    NodeId only_copy(Value arrived) const {
        NodeId found = -1;
        for (const NodeId reader : uses_.of(arrived)) {
            if (reader < 0) continue;
            if (found >= 0 || graph_.node(reader).op->name != "cast") return -1;
            found = reader;
        }
        return found;
    }

    const Graph& graph_;
    Uses uses_;
};

class InParts {
  public:
    InParts(const Graph& graph, std::map<int, Master> masters, int ranks)
        : source_(graph),
          uses_(source_),
          masters_(std::move(masters)),
          ranks_(ranks),
          rewriter_(source_, Rewriter::Types::may_change) {
        for (const auto& [state, master] : masters_) {
            source_.drop_update(state);
            copies_[master.copy] = master.arrived;
            sent_[master.gathered.node][master.gathered.output] = master.copy;
        }
    }

    Graph run() {
        for (NodeId id = 0; id < source_.end(); ++id) place(id);
        std::map<int, Value> updates;
        for (const auto& [state, master] : masters_) updates[state] = rewriter_.map(master.updated);
        Graph graph = rewriter_.finish();
        for (const auto& [state, value] : updates) graph.add_update(state, value);
        return graph;
    }

  private:
    void place(NodeId id) {
        const Node& node = source_.node(id);
        if (const auto copy = copies_.find(id); copy != copies_.end()) {
            rewriter_.place({id, 0}, rewriter_.map(copy->second));
        } else if (const auto sent = sent_.find(id); sent != sent_.end()) {
            send_copies(id, sent->second);
        } else if (const int state = source_.state_of(id); masters_.contains(state)) {
            const OriginScope scope(rewriter_.target(), node.origin);
            parts_[id] = rewriter_.target().add_state(part_of_state(source_.state(state), ranks_));
        } else if (node.op->name == "own_shard" && parts_.contains(node.inputs[0].node)) {
            rewriter_.place({id, 0}, parts_.at(node.inputs[0].node));
        } else if (std::ranges::all_of(node.inputs, [&](Value input) { return rewriter_.placed(input); })) {
            rewriter_.copy(id);
        } else {
            check(is_unread(uses_, id), "what reads a parameter that is kept in parts has no reader");
        }
    }

    /// Sends copies by the exchange, where only copies are read.
    void send_copies(NodeId id, const std::map<std::int32_t, NodeId>& copies) {
        const Node& node = source_.node(id);
        std::vector<Value> parts = rewriter_.map(node.inputs);
        for (const auto& [output, copy] : copies) {
            const Node& cast = source_.node(copy);
            const OriginScope scope(rewriter_.target(), cast.origin);
            Value& part = parts[output];
            part = {rewriter_.target().add("cast", {part}, cast.attributes), 0};
        }
        const OriginScope scope(rewriter_.target(), node.origin);
        rewriter_.place(id, rewriter_.target().add("all_gather_start", std::move(parts), node.attributes));
    }

    Graph source_;
    Uses uses_;
    std::map<int, Master> masters_;
    int ranks_;
    Rewriter rewriter_;
    std::map<NodeId, Value> copies_;                         // casts, by the arriving value that replaces
                                                             // them
    std::map<NodeId, std::map<std::int32_t, NodeId>> sent_;  // by exchange and output: the cast of it
    std::map<NodeId, Value> parts_;                          // by node of a state of the source
};

}  // namespace

Graph derived_from_shards(const Graph& source, const std::set<std::string>& names, int ranks) {
    Graph graph;
    std::vector<Tensor> parts;
    std::vector<Shape> shapes;
    std::vector<int> gathered;
    for (const State& state : source.states())
        graph.add_state(names.contains(state.name) ? part_of_state(state, ranks) : state);
    for (const Update& update : source.updates()) {
        const Node& cast = source.node(update.value.node);
        const int from = source.state_of(cast.inputs[0].node);
        const State& parameter = source.state(from);
        const OriginScope scope(graph, cast.origin);
        const Value read{graph.state(from).node, 0};
        const Value made{graph.add(cast.op->name, {read}, cast.attributes), update.value.output};
        if (names.contains(parameter.name)) {
            parts.push_back({graph, made});
            shapes.push_back(parameter.type.shape);
            gathered.push_back(update.state);
        } else {
            graph.add_update(update.state, made);
        }
    }
    const OriginScope scope(graph, Origin{.scope = "", .stage = Stage::forward});
    const std::vector<Tensor> wholes = all_gathered(graph, parts, shapes, {.ranks = ranks});
    for (std::size_t i = 0; i < gathered.size(); ++i) graph.add_update(gathered[i], wholes[i].value());
    return graph;
}

ShardedParameters shard_parameters(const Graph& graph, const Graph& derive, int ranks) {
    const std::map<int, Master> masters = PartsRecognition(graph).run();
    ShardedParameters kept;
    for (const auto& [state, master] : masters) kept.names.insert(graph.state(state).name);
    kept.graph = InParts(graph, masters, ranks).run();
    kept.derive = derived_from_shards(derive, kept.names, ranks);
    return kept;
}

Graph with_parts(const Graph& graph, const std::set<std::string>& names, int ranks) {
    Rewriter rewriter(graph);
    const Uses uses(graph);
    for (NodeId id = 0; id < graph.end(); ++id) {
        const int state = graph.state_of(id);
        if (state >= 0 && names.contains(graph.state(state).name)) {
            const OriginScope scope(rewriter.target(), graph.node(id).origin);
            rewriter.target().add_state(part_of_state(graph.state(state), ranks));
            continue;
        }
        const auto missing = std::ranges::find_if_not(graph.node(id).inputs,
                                                      [&](Value input) { return rewriter.placed(input); });
        if (missing != graph.node(id).inputs.end()) {
            if (is_unread(uses, id)) continue;
            throw UsageError(fmt::format(
                "'{}' is read by {}, but ranks have parts of it, since a training step reads copies "
                "alone: give `states` whole",
                graph.state(graph.state_of(missing->node)).name, graph.node(id).op->name));
        }
        rewriter.copy(id);
    }
    return rewriter.finish();
}

}  // namespace mantissa
