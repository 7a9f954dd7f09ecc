#include "mantissa/passes/join_updates.h"

#include <map>
#include <string>
#include <vector>

#include "mantissa/passes/analysis/uses.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

using Groups = std::map<std::string, std::vector<NodeId>>;

bool is_update(const Node& node) {
    return node.origin.stage == Stage::update && node.op->composite() && !node.op->in_place.empty();
}

/// Whether a node of the graph reads an output; updates of states do not count.
bool is_read(const Graph& graph, const Uses& uses, NodeId id) {
    for (std::size_t output = 0; output < graph.node(id).outputs.size(); ++output)
        for (const NodeId reader : uses.of({id, static_cast<std::int32_t>(output)}))
            if (reader >= 0) return true;
    return false;
}

/// Operation, attributes and formats, which all updates of a joined node share.
std::string kind_of(const Graph& graph, const Node& node) {
    std::string kind = std::string(node.op->name) + node.attributes.text();
    for (const Type& type : graph.input_types(node)) kind += " " + Type{type.dtype, {}, type.layout}.text();
    return kind;
}

Groups groups_of(const Graph& graph) {
    const Uses uses(graph);
    Groups groups;
    for (NodeId id = 0; id < graph.end(); ++id) {
        const Node& node = graph.node(id);
        if (is_update(node) && !is_read(graph, uses, id)) groups[kind_of(graph, node)].push_back(id);
    }
    std::erase_if(groups, [](const auto& group) { return group.second.size() < 2; });
    return groups;
}

std::vector<Value> operands_of(const Graph& graph, const std::vector<NodeId>& group) {
    std::vector<Value> operands;
    for (const NodeId id : group)
        for (const Value& operand : graph.node(id).inputs) operands.push_back(operand);
    return operands;
}

Attributes joined_attributes(const Node& node, std::size_t parts) {
    return node.attributes.with("update", std::string(node.op->name))
        .with("parts", static_cast<std::int64_t>(parts));
}

/// Whether a joined node in a graph of its own can run.
bool can_run(const Graph& graph, const std::vector<NodeId>& group,
             FunctionRef<bool(const Graph&, const Node&)> has_kernel) {
    Graph lone;
    std::vector<Value> operands;
    for (const Value& operand : operands_of(graph, group))
        operands.push_back(lone.add_input("x" + std::to_string(operands.size()), graph.type(operand)));
    const NodeId joined = lone.add("joined_updates", std::move(operands),
                                   joined_attributes(graph.node(group[0]), group.size()));
    return has_kernel(lone, lone.node(joined));
}

}  // namespace

Graph join_updates(const Graph& graph, FunctionRef<bool(const Graph&, const Node&)> has_kernel) {
    Groups groups = groups_of(graph);
    std::erase_if(groups, [&](const auto& group) { return !can_run(graph, group.second, has_kernel); });
    std::map<NodeId, const std::vector<NodeId>*> group_of;
    for (const auto& [kind, group] : groups)
        for (const NodeId id : group) group_of[id] = &group;
    Rewriter rewriter(graph);
    for (NodeId id = 0; id < graph.end(); ++id) {
        const auto found = group_of.find(id);
        if (found == group_of.end()) {
            rewriter.copy(id);
            continue;
        }
        const std::vector<NodeId>& group = *found->second;
        if (id != group.back()) continue;
        Origin origin = graph.node(id).origin;
        origin.scope.clear();  // scopes of many parameters
        const OriginScope scope(rewriter.target(), origin);
        const NodeId joined = rewriter.target().add("joined_updates", rewriter.map(operands_of(graph, group)),
                                                    joined_attributes(graph.node(id), group.size()));
        std::int32_t output = 0;
        for (const NodeId part : group)
            for (std::size_t own = 0; own < graph.node(part).outputs.size(); ++own)
                rewriter.place({part, static_cast<std::int32_t>(own)}, {joined, output++});
    }
    return rewriter.finish();
}

}  // namespace mantissa
