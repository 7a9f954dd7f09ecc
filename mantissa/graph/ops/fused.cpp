// The fused node: primitives that run as one kernel, and stand in its body. Its definition puts the body in
// place of the node, so a fused node means exactly the primitives that it was made from.
#include "mantissa/graph/graph.h"
#include "mantissa/graph/inline_body.h"
#include "mantissa/graph/ops/rules.h"

namespace mantissa::inline v0 {

namespace {

using namespace rules;

std::vector<Type> fused_types(const OpCall& call) {
    const Graph& body = call.attributes.body("body").graph();
    check(body.inputs().size() == call.inputs.size(),
          "a fused node has an operand for each input of its body");
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
        const Type& wanted = body.node(body.inputs()[i]).outputs[0];
        expect(call.inputs[i] == wanted, "operand {} must be {}, got {}", i, wanted.text(),
               call.inputs[i].text());
    }
    std::vector<Type> types;
    for (const Result& result : body.results()) types.push_back(body.type(result.value));
    return types;
}

std::vector<Tensor> fused_definition(const DefinitionCall& call) {
    return inline_body(call.graph, call.attributes.body("body").graph(), call.inputs);
}

/// The arithmetic of every node of the body, each computed once.
std::int64_t fused_flops(std::span<const Type>, std::span<const Type>, const Attributes& attributes) {
    const Graph& body = attributes.body("body").graph();
    std::int64_t flops = 0;
    for (NodeId i = 0; i < body.end(); ++i) {
        const Node& node = body.node(i);
        flops += node.op->cost(body.input_types(node), node.outputs, node.attributes).flops;
    }
    return flops;
}

}  // namespace

std::span<const Op> fused_ops() {
    static const std::vector<Op> rows = {
        {.name = "fused",
         .min_inputs = 0,
         .max_inputs = 1 << 16,
         .types = fused_types,
         .no_gradient = "fusion comes after differentiation",
         .flops = fused_flops,
         .definition = fused_definition,
         .reads_codes = ~0u},
    };
    return rows;
}

}  // namespace mantissa
