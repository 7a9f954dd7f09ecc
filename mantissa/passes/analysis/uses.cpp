#include "mantissa/passes/analysis/uses.h"

#include "mantissa/passes/analysis/plan_memory.h"

namespace mantissa::inline v0 {

Uses::Uses(const Graph& graph, std::span<const Value> kept) : uses_of_node_(graph.size()) {
    for (NodeId id = 0; id < graph.end(); ++id) {
        const Node& node = graph.node(id);
        uses_.emplace_back(node.outputs.size());
        for (const Value& input : node.inputs) add(input, id);
    }
    for (const Result& result : graph.results()) add(result.value, -1);
    for (const Update& update : graph.updates()) add(update.value, -1);
    for (const Value& value : kept) add(value, -1);
}

void Uses::add(Value value, NodeId user) {
    uses_[value.node][value.output].push_back(user);
    uses_of_node_[value.node].push_back(user);
}

std::vector<bool> live_nodes(const Graph& graph, std::span<const Value> kept) {
    std::vector<bool> live(graph.size());
    const auto mark = [&](Value value) { live[value.node] = true; };
    for (const Result& result : graph.results()) mark(result.value);
    for (const Update& update : graph.updates()) mark(update.value);
    for (const Value& value : kept) mark(value);
    for (NodeId id = graph.end(); id-- > 0;)
        if (live[id])
            for (const Value& input : graph.node(id).inputs) mark(input);
    return live;
}

std::vector<bool> holds_what_a_run_gives(const Graph& graph) {
    std::vector<bool> holds(graph.size());
    const auto mark = [&](Value value) { holds[value.node] = true; };
    for (const Result& result : graph.results()) mark(result.value);
    for (const Update& update : graph.updates()) mark(update.value);
    for (NodeId id = graph.end(); id-- > 0;)
        if (const Node& node = graph.node(id); holds[id] && is_view(graph, node)) mark(node.inputs[0]);
    return holds;
}

}  // namespace mantissa
