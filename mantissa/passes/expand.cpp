#include "mantissa/passes/expand.h"

#include "mantissa/base/error.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/passes/analysis/uses.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

/// One round; `replaced` counts the composites that went.
Graph expand_once(const Graph& graph, FunctionRef<bool(const Graph&, const Node&)> wanted, int& replaced) {
    Rewriter rewriter(graph);
    const std::vector<bool> live = live_nodes(graph);
    for (NodeId id = 0; id < graph.end(); ++id) {
        const Node& node = graph.node(id);
        if (!live[id] && !is_from_outside(node)) continue;
        if (!node.op->composite() || !wanted(graph, node)) {
            rewriter.copy(id);
            continue;
        }
        const OriginScope scope(rewriter.target(), node.origin);
        std::vector<Tensor> inputs;
        for (const Value& input : rewriter.map(node.inputs)) inputs.emplace_back(rewriter.target(), input);
        const std::vector<Tensor> outputs = node.op->definition({rewriter.target(), inputs, node.attributes});
        check(outputs.size() == node.outputs.size(), "a definition gives every output");
        for (std::size_t output = 0; output < outputs.size(); ++output)
            rewriter.place({id, static_cast<std::int32_t>(output)}, outputs[output].value());
        ++replaced;
    }
    return rewriter.finish();
}

}  // namespace

Graph expand(const Graph& graph, FunctionRef<bool(const Graph&, const Node&)> wanted) {
    int replaced = 0;
    Graph current = expand_once(graph, wanted, replaced);
    while (replaced > 0) {
        replaced = 0;
        current = expand_once(current, wanted, replaced);
    }
    return current;
}

}  // namespace mantissa
