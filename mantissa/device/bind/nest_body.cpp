#include "mantissa/device/bind/nest_body.h"

#include <fmt/format.h>

#include "mantissa/graph/call.h"
#include "mantissa/passes/expand.h"
#include "mantissa/passes/simplify.h"

namespace mantissa::inline v0 {

namespace {

/// Whether every result is one that a kernel can write.
std::string refuse_results(const Graph& body, const Nest& nest) {
    for (const Result& result : body.results()) {
        const Node& node = body.node(result.value.node);
        if (node.op->name == "input") return "a result is an operand";
        const Varies varies = nest.values.at(result.value);
        const bool is_sum = reduces(body, node) != Reduces::nothing;
        if (!is_sum && varies != Varies::by_both && varies != Varies::by_row)
            return fmt::format("{} varies neither by row nor by row and column", node.outputs[0].text());
    }
    return "";
}

}  // namespace

Expected<NestBody> nest_of_body(Graph body) {
    std::vector<NodeId> nodes;
    for (std::size_t id = 0; id < body.size(); ++id)
        if (body.node(static_cast<NodeId>(id)).op->name != "input") nodes.push_back(static_cast<NodeId>(id));
    Expected<Nest> nest = make_nest(
        body, nodes, [](Value) { return false; }, Loops::one_if_possible, Doubles::single);
    if (!nest) return Unexpected{nest.reason()};
    if (std::string reason = refuse_results(body, *nest); !reason.empty())
        return Unexpected{std::move(reason)};
    return NestBody{std::move(body), std::move(*nest)};
}

Expected<NestBody> nest_of_definition(const Graph& definition) {
    return nest_of_body(simplify(expand(definition, [](const Graph&, const Node&) { return true; })));
}

Expected<NestBody> nest_of_operation(const Problem& problem) {
    Graph definition;
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < problem.inputs.size(); ++i)
        inputs.emplace_back(definition, definition.add_input(fmt::format("in{}", i), problem.inputs[i]));
    const std::vector<Tensor> outputs = call(definition, problem.op.name, inputs, problem.attributes);
    for (std::size_t i = 0; i < outputs.size(); ++i)
        definition.add_result(fmt::format("out{}", i), outputs[i].value());
    return nest_of_definition(definition);
}

}  // namespace mantissa
