#include "mantissa/passes/quantize.h"

#include <fmt/format.h>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

/// A matrix multiplied by a parameter as a linear layer does: x [M, K] times W [N, K] transposed.
bool is_linear(const Graph& graph, const Node& node, const std::string& format) {
    if (node.op->name != "matmul" || node.outputs[0].dtype != DType::f32 || node.origin.precision)
        return false;
    const int state = graph.state_of(node.inputs[1].node);
    if (state < 0 || graph.state(state).kind != State::Kind::parameter) return false;
    const Type& w = graph.type(node.inputs[1]);
    return w.dtype == DType::f32 && w.shape.rank() == 2 && node.attributes.flag("transpose_b") &&
           !node.attributes.flag("transpose_a") && (format == "s8" || w.shape[1] % 2 == 0);
}

}  // namespace

Graph quantize(const Graph& graph, const Policy& policy, std::span<Value> kept) {
    Rewriter rewriter(graph);
    for (NodeId id = 0; id < graph.end(); ++id) {
        const Node& node = graph.node(id);
        if (!is_linear(graph, node, policy.weights)) {
            rewriter.copy(id);
            continue;
        }
        Origin origin = node.origin;
        origin.rule = fmt::format("{} list: weight of a linear layer", policy.weights);
        const OriginScope scope(rewriter.target(), std::move(origin));
        const std::vector<Value> inputs = rewriter.map(node.inputs);
        const NodeId weight =
            rewriter.target().add("quantize_weight", {inputs[1]}, {{"format", policy.weights}});
        std::vector<Value> operands{inputs[0], {weight, 0}, {weight, 1}};
        if (inputs.size() == 3) operands.push_back(inputs[2]);
        const NodeId product =
            rewriter.target().add("quantized_matmul", std::move(operands), {{"multiply", policy.weights}});
        rewriter.place({id, 0}, {product, 0});
    }
    for (Value& value : kept) value = rewriter.map(value);
    return rewriter.finish();
}

}  // namespace mantissa
