#include "mantissa/passes/fold_addends.h"

#include <map>

#include "mantissa/passes/analysis/uses.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

struct Folding {
    NodeId gradient = -1;
    Value addend = {};
};

bool can_take_addend(const Graph& graph, const Uses& uses, Value value) {
    const Node& node = graph.node(value.node);
    return node.op->name == "embedding_grad" && node.inputs.size() == 2 && uses.of(value).size() == 1 &&
           uses.of(value)[0] >= 0;
}

/// By additions; where both operands could take the other, the later one does.
std::map<NodeId, Folding> foldings(const Graph& graph) {
    const Uses uses(graph);
    std::map<NodeId, Folding> found;
    for (NodeId id = 0; id < graph.end(); ++id) {
        const Node& node = graph.node(id);
        if (node.op->name != "add") continue;
        for (const auto& [value, other] :
             {std::pair{node.inputs[0], node.inputs[1]}, std::pair{node.inputs[1], node.inputs[0]}}) {
            const bool fits = can_take_addend(graph, uses, value) && graph.type(other) == graph.type(value) &&
                              node.outputs[0] == graph.type(value);
            if (fits && (!found.contains(id) || found[id].gradient < value.node))
                found[id] = {value.node, other};
        }
    }
    return found;
}

}  // namespace

Graph fold_addends(const Graph& graph) {
    const std::map<NodeId, Folding> found = foldings(graph);
    std::map<NodeId, NodeId> folded;  // gradients, and where they are added
    for (const auto& [id, folding] : found) folded[folding.gradient] = id;
    Rewriter rewriter(graph);
    for (NodeId id = 0; id < graph.end(); ++id) {
        if (folded.contains(id)) continue;
        const auto folding = found.find(id);
        if (folding == found.end()) {
            rewriter.copy(id);
            continue;
        }
        const Node& gradient = graph.node(folding->second.gradient);
        std::vector<Value> operands = rewriter.map(gradient.inputs);
        operands.push_back(rewriter.map(folding->second.addend));
        const OriginScope scope(rewriter.target(), gradient.origin);
        rewriter.place(
            {id, 0}, {rewriter.target().add("embedding_grad", std::move(operands), gradient.attributes), 0});
    }
    return rewriter.finish();
}

}  // namespace mantissa
