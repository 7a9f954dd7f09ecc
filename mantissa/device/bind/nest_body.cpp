#include "mantissa/device/bind/nest_body.h"

#include <fmt/format.h>

#include "mantissa/graph/call.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/passes/analysis/nest.h"
#include "mantissa/passes/contract_products.h"
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

/// The shape that an operand's first reader gives it; its own where no reader gives it another.
Shape shape_as_read(const Graph& body, NodeId operand) {
    for (NodeId id = 0; id < body.end(); ++id)
        if (body.node(id).op->name == "reshape" && body.node(id).inputs[0].node == operand)
            return body.node(id).outputs[0].shape;
    return body.node(operand).outputs[0].shape;
}

/// A kernel knows its operands by their memory: an operand that is read in another shape has that shape.
/// Where it is read in several, a cast that changes nothing lies inside the nest, and may be given any.
Graph with_operands_as_read(const Graph& body) {
    Graph target;
    std::vector<NodeId> copies;  // by node
    const auto copied = [&](Value value) {
        return Value{copies[static_cast<std::size_t>(value.node)], value.output};
    };
    const auto in_shape = [&](Value operand, const Type& type) {
        if (target.type(operand) == type) return operand;
        const Tensor inside(target, {target.add("cast", {operand}, {{"dtype", type.dtype}}), 0});
        return reshape(inside, type.shape).value();
    };
    for (NodeId id = 0; id < body.end(); ++id) {
        const Node& node = body.node(id);
        std::vector<Value> inputs;
        for (const Value& input : node.inputs) {
            const bool is_operand = body.node(input.node).op->name == "input" && node.op->name != "reshape";
            inputs.push_back(is_operand ? in_shape(copied(input), body.type(input)) : copied(input));
        }
        if (node.op->name == "input")
            copies.push_back(
                target
                    .add_input(node.attributes.word("name"), {node.outputs[0].dtype, shape_as_read(body, id)})
                    .node);
        else if (node.op->name == "reshape" && body.node(node.inputs[0].node).op->name == "input")
            copies.push_back(in_shape(inputs[0], node.outputs[0]).node);
        else
            copies.push_back(target.add(node.op->name, std::move(inputs), node.attributes));
    }
    for (const Result& result : body.results()) target.add_result(result.name, copied(result.value));
    return target;
}

}  // namespace

Expected<NestBody> nest_of_body(const Graph& body, Products products) {
    const Graph computed = products == Products::contracted ? contract_products(body) : body;
    Expected<Nest> nest = make_nest(computed, Loops::one_if_possible, Doubles::single);
    if (!nest) return Unexpected{nest.reason()};
    if (std::string reason = refuse_results(computed, *nest); !reason.empty())
        return Unexpected{std::move(reason)};
    const std::int64_t rows = nest->rows, columns = nest->columns;
    return NestBody{codegen::lower(computed, std::move(*nest)), rows, columns};
}

Expected<NestBody> nest_of_definition(const Graph& definition, Products products) {
    const Graph body = simplify(expand(definition, [](const Graph&, const Node&) { return true; }));
    return nest_of_body(with_operands_as_read(body), products);
}

Expected<NestBody> nest_of_operation(const Problem& problem) {
    Graph definition;
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < problem.inputs.size(); ++i)
        inputs.emplace_back(definition, definition.add_input(fmt::format("in{}", i), problem.inputs[i]));
    const std::vector<Tensor> outputs = call(definition, problem.op.name, inputs, problem.attributes);
    for (std::size_t i = 0; i < outputs.size(); ++i)
        definition.add_result(fmt::format("out{}", i), outputs[i].value());
    return nest_of_definition(definition, problem.op.copy ? Products::rounded : Products::contracted);
}

}  // namespace mantissa
