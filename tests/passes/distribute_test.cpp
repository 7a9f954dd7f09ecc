// Sums over ranks in the graph: begun as soon as what they sum is there, and nothing else moved.
#include "mantissa/passes/distribute.h"

#include <gtest/gtest.h>

#include "mantissa/graph/printer.h"
#include "mantissa/graph/verifier.h"

namespace mantissa {
namespace {

/// The names of the nodes, in their order, sources apart.
std::vector<std::string> order_of(const Graph& graph) {
    std::vector<std::string> names;
    for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id) {
        const std::string name(graph.node(id).op->name);
        if (name != "input" && name != "state" && name != "constant") names.push_back(name);
    }
    return names;
}

/// Three gradients, made in the order b, c, a, of which a and b are added to what is kept of them.
Graph step_of(const Distribution& distribution) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {8}}));
    const Tensor b = exp(x), c = sqrt(b), a = tanh(c);
    const auto kept = [&](const char* name) {
        return Tensor(
            graph,
            graph.add_state(
                {.kind = State::Kind::gradient, .name = name, .type = {DType::f32, {8}}, .initializer = {}}));
    };
    const Tensor sum_a = call1("tree_add", {kept("a"), a}), sum_b = call1("tree_add", {kept("b"), b});
    const std::vector<ReducedTerm> terms{
        {sum_a, a.value().node}, {sum_b, b.value().node}, {c, c.value().node}};
    const std::vector<Tensor> sums = all_reduced(graph, terms, distribution);
    for (std::size_t i = 0; i < sums.size(); ++i)
        graph.add_result(std::string(1, static_cast<char>('a' + i)), sums[i].value());
    return graph;
}

TEST(Distribute, BeginsEachSumWhereItsLastGradientIsFinished) {
    const Graph graph = step_of({.ranks = 2, .bucket_bytes = 1});
    EXPECT_EQ(order_of(graph),
              (std::vector<std::string>{"exp", "sqrt", "tanh", "tree_add", "tree_add", "all_reduce_start",
                                        "all_reduce_start", "all_reduce_start", "all_reduce_wait",
                                        "all_reduce_wait", "all_reduce_wait"}));
    const Graph early = distribute(graph);
    verify(early, "distribute");
    EXPECT_EQ(order_of(early),
              (std::vector<std::string>{"exp", "tree_add", "all_reduce_start", "sqrt", "all_reduce_start",
                                        "tanh", "tree_add", "all_reduce_start", "all_reduce_wait",
                                        "all_reduce_wait", "all_reduce_wait"}));
    EXPECT_EQ(print(distribute(early)), print(early));
    // Terms keep their places whatever bucket they are in.
    for (const auto& [result, op] : {std::pair{"a", "tree_add"}, {"b", "tree_add"}, {"c", "sqrt"}})
        for (const Result& each : early.results()) {
            if (each.name != result) continue;
            const Node& wait = early.node(each.value.node);
            const Node& start = early.node(wait.inputs[static_cast<std::size_t>(each.value.output)].node);
            EXPECT_EQ(start.op->name, "all_reduce_start");
            EXPECT_EQ(early.node(start.inputs[0].node).op->name, op);
        }
}

TEST(Distribute, FillsBucketsInTheOrderOfTheBackwardPass) {
    const Graph graph = distribute(step_of({.ranks = 2, .bucket_bytes = 40}));
    std::vector<std::size_t> sizes;
    for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id)
        if (graph.node(id).op->name == "all_reduce_start") sizes.push_back(graph.node(id).inputs.size());
    EXPECT_EQ(sizes, (std::vector<std::size_t>{2, 1}));  // b and c; a
    EXPECT_EQ(order_of(graph)[3], "all_reduce_start");
}

TEST(Distribute, OneRankSumsNothing) {
    for (const std::string& name : order_of(step_of({.ranks = 1}))) EXPECT_FALSE(name.starts_with("all_"));
}

}  // namespace
}  // namespace mantissa
