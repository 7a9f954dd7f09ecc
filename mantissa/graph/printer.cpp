#include "mantissa/graph/printer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mantissa::inline v0 {

namespace {

std::string value_text(const Graph& graph, Value value) {
    const Node& node = graph.node(value.node);
    if (node.op->name == "input" || node.op->name == "state") return "%" + node.attributes.word("name");
    if (node.op->name == "constant" && node.outputs[0].shape.rank() == 0)
        return fmt::format("{}", node.attributes.number("value"));
    return node.outputs.size() == 1 ? fmt::format("%{}", value.node)
                                    : fmt::format("%{}.{}", value.node, value.output);
}

/// Attributes on the node's line; a body below it, indented.
std::string attribute_text(const Attributes& attributes) {
    std::string text;
    for (char c : attributes.text()) text += c == '\n' ? std::string("\n    ") : std::string(1, c);
    return text;
}

}  // namespace

std::string print(const Graph& graph, NodeId id) {
    const Node& node = graph.node(id);
    std::vector<std::string> inputs, types;
    for (const Value& input : node.inputs) inputs.push_back(value_text(graph, input));
    for (const Type& type : node.outputs) types.push_back(type.text());
    std::string line =
        fmt::format("%{}: {} = {}({})", id, fmt::join(types, ", "), node.op->name, fmt::join(inputs, ", "));
    if (!node.attributes.empty()) line += " " + attribute_text(node.attributes);
    std::string origin = node.origin.scope;
    if (node.origin.stage != Stage::forward)
        origin += fmt::format("{}({})", origin.empty() ? "" : " ", name_of(node.origin.stage));
    return origin.empty() ? line : line + "  # " + origin;
}

std::string print(const Graph& graph) {
    std::string text;
    for (NodeId id = 0; id < graph.end(); ++id) {
        const Node& node = graph.node(id);
        const bool inlined = node.op->name == "constant" && node.outputs[0].shape.rank() == 0;
        if (!inlined) text += print(graph, id) + "\n";
    }
    for (const Result& result : graph.results())
        text += fmt::format("result {} = {}\n", result.name, value_text(graph, result.value));
    for (const Update& update : graph.updates())
        text +=
            fmt::format("update {} = {}\n", graph.state(update.state).name, value_text(graph, update.value));
    return text;
}

}  // namespace mantissa
