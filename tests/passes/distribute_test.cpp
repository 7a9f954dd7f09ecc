// Sums over ranks in the graph: begun as soon as what they sum is there, and nothing else moved.
#include "mantissa/passes/distribute.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include "mantissa/passes/analysis/plan_memory.h"

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
Graph distributed_step(const Distribution& distribution) {
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
    const Graph graph = distributed_step({.ranks = 2, .bucket_bytes = 1});
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
}

TEST(Distribute, EachTermIsSummedAndKeepsItsPlaceWhateverItsBucket) {
    const Graph graph = distribute(distributed_step({.ranks = 2, .bucket_bytes = 1}));
    const std::vector<std::string> terms = {"tree_add", "tree_add", "sqrt"};  // of a, b and c
    ASSERT_EQ(graph.results().size(), terms.size());
    for (std::size_t i = 0; i < terms.size(); ++i) {
        const Result& sum = graph.results()[i];
        const Node& wait = graph.node(sum.value.node);
        ASSERT_EQ(wait.op->name, "all_reduce_wait") << sum.name;
        const Node& start = graph.node(wait.inputs[static_cast<std::size_t>(sum.value.output)].node);
        ASSERT_EQ(start.op->name, "all_reduce_start") << sum.name;
        const Node& term = graph.node(start.inputs[0].node);
        EXPECT_EQ(term.op->name, terms[i]) << sum.name;
        if (term.op->name == "tree_add") {
            EXPECT_EQ(graph.states()[i].name, sum.name);
            EXPECT_EQ(graph.states()[i].node, term.inputs[0].node) << sum.name;
        }
    }
}

TEST(Distribute, FillsBucketsInTheOrderOfTheBackwardPass) {
    const Graph graph = distribute(distributed_step({.ranks = 2, .bucket_bytes = 40}));
    std::vector<std::size_t> sizes;
    for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id)
        if (graph.node(id).op->name == "all_reduce_start") sizes.push_back(graph.node(id).inputs.size());
    EXPECT_EQ(sizes, (std::vector<std::size_t>{2, 1}));  // b and c; a
    EXPECT_EQ(order_of(graph)[3], "all_reduce_start");
}

/// Each of two parameters is doubled in parts, and read once more behind that if asked.
Graph gathered_update(bool is_read_later) {
    Graph graph;
    const Distribution distribution{.ranks = 4, .bucket_bytes = 1};
    std::vector<Tensor> parts;
    std::vector<Shape> shapes;
    const Shape shape{9, 500};
    for (const char* name : {"v", "w"}) {
        const Tensor whole(graph,
                           graph.add_state({.name = name, .type = {DType::f32, shape}, .initializer = {}}));
        parts.push_back(call1("own_shard", {whole}, {{"ranks", std::int64_t{4}}}) * 2.0);
        shapes.push_back(shape);
    }
    const std::vector<Tensor> wholes = all_gathered(graph, parts, shapes, distribution);
    for (int i = 0; i < 2; ++i) graph.add_update(i, wholes[static_cast<std::size_t>(i)].value());
    if (is_read_later) graph.add_result("late", exp(Tensor(graph, {graph.states()[0].node, 0})).value());
    return graph;
}

TEST(Distribute, BringsPartsTogetherWhereTheyAreMade) {
    const Graph graph = distribute(gathered_update(false));
    verify(graph, "distribute");
    EXPECT_EQ(order_of(graph),
              (std::vector<std::string>{"own_shard", "mul", "all_gather_start", "own_shard", "mul",
                                        "all_gather_start", "all_gather_wait", "all_gather_wait"}));
    // 4,500 elements among four: two blocks of 1,024 each.
    EXPECT_EQ(graph.type(graph.node(graph.updates()[0].value.node).inputs[0]).shape, (Shape{9, 500}));
    for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id)
        if (graph.node(id).op->name == "own_shard") {
            EXPECT_EQ(graph.node(id).outputs[0].shape, Shape{2048});
        }
}

TEST(Distribute, WhatIsOnItsWayToBecomeAStateLiesThereUnlessTheOldOneIsRead) {
    for (const bool is_read_later : {false, true}) {
        const Graph graph = gathered_update(is_read_later);
        const MemoryPlan plan = plan_memory(graph);
        for (const Update& update : graph.updates()) {
            const Value arrived = update.value, sent = graph.node(arrived.node).inputs[0];
            const bool stays = is_read_later && update.state == 0;
            for (const Value value : {sent, arrived})
                EXPECT_EQ(plan.place(value).kind == Place::Kind::state, !stays) << update.state;
            if (!stays) {
                EXPECT_EQ(plan.place(sent).index, update.state);
            }
        }
        EXPECT_EQ(plan.copied_updates.size(), is_read_later ? 1u : 0u);
    }
}

TEST(Distribute, OneRankSumsNothing) {
    for (const std::string& name : order_of(distributed_step({.ranks = 1})))
        EXPECT_FALSE(name.starts_with("all_"));
}

}  // namespace
}  // namespace mantissa
