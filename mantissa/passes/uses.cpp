#include "mantissa/passes/uses.h"

namespace mantissa {

Uses::Uses(const Graph& graph, std::span<const Value> kept) {
    for (std::size_t id = 0; id < graph.size(); ++id) {
        const Node& node = graph.node(static_cast<NodeId>(id));
        uses_.emplace_back(node.outputs.size());
        for (const Value& input : node.inputs) add(input, static_cast<NodeId>(id));
    }
    for (const Result& result : graph.results()) add(result.value, -1);
    for (const Update& update : graph.updates()) add(update.value, -1);
    for (const Value& value : kept) add(value, -1);
}

void Uses::add(Value value, NodeId user) {
    uses_[static_cast<std::size_t>(value.node)][static_cast<std::size_t>(value.output)].push_back(user);
}

}  // namespace mantissa
