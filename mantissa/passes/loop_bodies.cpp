#include "mantissa/passes/loop_bodies.h"

#include <map>
#include <string>

#include "mantissa/graph/scan.h"
#include "mantissa/passes/analysis/uses.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

/// The results of a loop's body that are wanted: its states, and outputs that something reads.
std::vector<std::int32_t> read_results(const Graph& graph, const Uses& uses, NodeId loop) {
    const Node& node = graph.node(loop);
    const auto states = static_cast<std::int32_t>(scan_form(node.attributes).states);
    std::vector<std::int32_t> read;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(node.outputs.size()); ++i)
        if (i < states || !uses.of(Value{loop, i}).empty()) read.push_back(i);
    return read;
}

Body with_results(const Body& body, const std::vector<std::int32_t>& wanted) {
    if (wanted.size() == body.graph().results().size()) return body;
    Graph graph = body.graph();
    const std::vector<Result> results = graph.take_results();
    for (const std::int32_t i : wanted) graph.add_result(results[i].name, results[i].value);
    return Body(std::move(graph));
}

}  // namespace

Graph with_bodies(const Graph& graph, FunctionRef<Graph(const Graph& body)> rewrite) {
    const auto is_loop = [&](NodeId id) { return graph.node(id).op->name == "scan"; };
    bool any = false;
    for (NodeId id = 0; id < graph.end(); ++id) any = any || is_loop(id);
    if (!any) return graph;
    Rewriter rewriter(graph);
    const Uses uses(graph);
    std::map<std::string, Body> known;  // by text
    for (NodeId id = 0; id < graph.end(); ++id) {
        if (!is_loop(id)) {
            rewriter.copy(id);
            continue;
        }
        const Node& node = graph.node(id);
        const std::vector<std::int32_t> read = read_results(graph, uses, id);
        const Body body = with_results(node.attributes.body("body"), read);
        auto entry = known.find(body.text());
        if (entry == known.end()) entry = known.emplace(body.text(), Body(rewrite(body.graph()))).first;
        const OriginScope scope(rewriter.target(), node.origin);
        const NodeId made = rewriter.target().add("scan", rewriter.map(node.inputs),
                                                  node.attributes.with("body", entry->second));
        for (std::int32_t i = 0; i < std::ssize(read); ++i) rewriter.place({id, read[i]}, {made, i});
    }
    return rewriter.finish();
}

}  // namespace mantissa
