#include "mantissa/graph/inline_body.h"

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

std::vector<Tensor> inline_body(Graph& graph, const Graph& body, std::span<const Tensor> inputs,
                                Origins origins) {
    check(body.inputs().size() == inputs.size(), "a body is given a tensor for each of its inputs");
    std::vector<std::vector<Value>> placed(body.size());
    std::vector<bool> left_out(body.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        left_out[body.inputs()[i]] = !inputs[i];
        if (inputs[i]) placed[body.inputs()[i]] = {inputs[i].value()};
    }
    const auto map = [&](Value value) { return placed[value.node][value.output]; };
    for (NodeId i = 0; i < body.end(); ++i) {
        const Node& node = body.node(i);
        for (const Value& input : node.inputs) left_out[i] = left_out[i] || left_out[input.node];
        if (left_out[i] || !placed[i].empty()) continue;
        std::vector<Value> operands;
        for (const Value& input : node.inputs) operands.push_back(map(input));
        const OriginScope scope(graph, origins == Origins::of_body ? node.origin : graph.origin);
        const NodeId id = graph.add(node.op->name, std::move(operands), node.attributes);
        for (std::size_t output = 0; output < node.outputs.size(); ++output)
            placed[i].push_back({id, static_cast<std::int32_t>(output)});
    }
    std::vector<Tensor> results;
    for (const Result& result : body.results()) {
        check(!left_out[result.value.node], "what a result needs is given");
        results.emplace_back(graph, map(result.value));
    }
    return results;
}

}  // namespace mantissa
