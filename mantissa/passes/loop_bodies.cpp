#include "mantissa/passes/loop_bodies.h"

#include <map>
#include <string>

#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

Graph with_bodies(const Graph& graph, FunctionRef<Graph(const Graph& body)> rewrite) {
    const auto is_loop = [&](NodeId id) { return graph.node(id).op->name == "scan"; };
    bool any = false;
    for (NodeId id = 0; id < graph.end(); ++id) any = any || is_loop(id);
    if (!any) return graph;
    Rewriter rewriter(graph);
    std::map<std::string, Body> known;  // by text
    for (NodeId id = 0; id < graph.end(); ++id) {
        if (!is_loop(id)) {
            rewriter.copy(id);
            continue;
        }
        const Node& node = graph.node(id);
        const Body& body = node.attributes.body("body");
        auto entry = known.find(body.text());
        if (entry == known.end()) entry = known.emplace(body.text(), Body(rewrite(body.graph()))).first;
        const OriginScope scope(rewriter.target(), node.origin);
        const NodeId made = rewriter.target().add("scan", rewriter.map(node.inputs),
                                                  node.attributes.with("body", entry->second));
        for (std::int32_t i = 0; i < static_cast<std::int32_t>(node.outputs.size()); ++i)
            rewriter.place({id, i}, {made, i});
    }
    return rewriter.finish();
}

}  // namespace mantissa
