// Additions to an embedding's gradient: folded where nobody else reads the gradient, with the same sum, and
// added to where it lies.
#include "mantissa/passes/fold_addends.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "mantissa/base/whole_units.h"
#include "mantissa/graph/reference.h"
#include "mantissa/passes/analysis/plan_memory.h"
#include "mantissa/passes/pipeline.h"
#include "tests/passes/small_gpt2.h"
#include "tests/support/op_cases.h"
#include "tests/support/show_gradients.h"

namespace mantissa {
namespace {

constexpr std::int64_t rows = 7, columns = 3;

/// By operands of the embedding gradients of a graph.
std::map<std::size_t, int> gradients_in(const Graph& graph) {
    std::map<std::size_t, int> found;
    for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id)
        if (graph.node(id).op->name == "embedding_grad") ++found[graph.node(id).inputs.size()];
    return found;
}

Tensor gradient_of(Graph& graph, const char* name) {
    const Tensor dy(graph, graph.add_input(std::string("dy") + name, {DType::f32, {5, columns}}));
    const Tensor ids(graph, graph.add_input(std::string("ids") + name, {DType::i32, {5}}));
    return call1("embedding_grad", {dy, ids}, {{"rows", rows}});
}

Tensor table(Graph& graph, Shape shape = {rows, columns}) {
    return {graph, graph.add_input("g", {DType::f32, std::move(shape)})};
}

/// The largest difference of a result between two graphs with the same inputs.
double largest_difference(const Graph& a, const Graph& b) {
    ReferenceFeed feed;
    std::uint32_t which = 1;
    for (NodeId id : a.inputs()) {
        const Node& node = a.node(id);
        const bool ids = node.outputs[0].dtype == DType::i32;
        feed[node.attributes.word("name")] = testing::values_of(
            ids ? testing::ids(node.outputs[0].shape, rows) : testing::f32(node.outputs[0].shape), which++);
    }
    for (const State& state : a.states()) feed[state.name] = testing::values_of({state.type}, which++);
    const ReferenceRun x(a, feed), y(b, feed);
    double worst = 0;
    for (const Result& result : a.results()) {
        const std::vector<double>&expected = x.result(result.name).values,
              &got = y.result(result.name).values;
        EXPECT_EQ(got.size(), expected.size()) << result.name;
        for (std::size_t i = 0; i < expected.size(); ++i) {
            const double difference = std::abs(got[i] - expected[i]);
            worst = difference <= worst ? worst : difference;  // a NaN stays
        }
    }
    return worst;
}

TEST(FoldAddends, ASumBecomesOneOperationWhicheverOperandTheGradientIs) {
    for (const bool first : {true, false}) {
        Graph graph;
        const Tensor g = table(graph), gradient = gradient_of(graph, "");
        graph.add_result("sum", (first ? gradient + g : g + gradient).value());
        const Graph folded = fold_addends(graph);
        verify(folded, "fold_addends");
        EXPECT_EQ(gradients_in(folded), (std::map<std::size_t, int>{{3, 1}}));
        EXPECT_EQ(folded.size(), graph.size() - 1);
        EXPECT_LE(largest_difference(graph, folded), 1e-15 * 8);
        EXPECT_EQ(print(fold_addends(folded)), print(folded));
    }
}

TEST(FoldAddends, OfTwoGradientsTheLaterTakesTheOther) {
    Graph graph;
    const Tensor one = gradient_of(graph, "1"), two = gradient_of(graph, "2");
    graph.add_result("sum", ((one + two) + table(graph)).value());
    const Graph folded = fold_addends(graph);
    EXPECT_EQ(gradients_in(folded), (std::map<std::size_t, int>{{2, 1}, {3, 1}}));
    EXPECT_LE(largest_difference(graph, folded), 1e-15 * 8);
    EXPECT_EQ(print(fold_addends(folded)), print(folded));
}

TEST(FoldAddends, WhatOthersReadOrIsOfAnotherShapeStays) {
    Graph shared;
    const Tensor gradient = gradient_of(shared, "");
    shared.add_result("sum", (gradient + table(shared)).value());
    shared.add_result("gradient", gradient.value());
    EXPECT_EQ(print(fold_addends(shared)), print(shared));
    Graph repeated;
    repeated.add_result("sum", (gradient_of(repeated, "") + table(repeated, {1, columns})).value());
    EXPECT_EQ(print(fold_addends(repeated)), print(repeated));
    Graph doubled;
    const Tensor twice = gradient_of(doubled, "");
    doubled.add_result("sum", (twice + twice).value());
    EXPECT_EQ(print(fold_addends(doubled)), print(doubled));
}

TEST(FoldAddends, AStepWithATiedEmbeddingHasOneGradientOfIt) {
    const Graph graph = build_training_step(testing::traced_gpt2(testing::small_gpt2(1, 8, rows), {2, 5}),
                                            testing::show_gradients, {})
                            .graph;
    const Graph folded = fold_addends(graph);
    EXPECT_EQ(gradients_in(graph)[2], 1);
    EXPECT_EQ(gradients_in(folded), (std::map<std::size_t, int>{{3, 1}}));
    EXPECT_LE(largest_difference(graph, folded), 1e-12);
}

TEST(FoldAddends, TheSumLiesWhereTheAddendLay) {
    // The addend is the beginning of a padded table; `in_place` is what the CPU's kernel allows.
    Graph graph;
    const Tensor padded = exp(table(graph, {rows + 2, columns}));
    graph.add_result("sum", (slice(padded, 0, 0, rows) + gradient_of(graph, "")).value());
    const Graph folded = fold_addends(graph);
    const MemoryPlan plan =
        plan_memory(folded, {.may_write_over = [&](NodeId id) {
                        const bool adds = folded.node(id).op->name == "embedding_grad";
                        return adds ? std::vector<std::vector<int>>{{2}} : std::vector<std::vector<int>>{};
                    }});
    EXPECT_EQ(plan.allocations.size(), 1u);
    EXPECT_EQ(plan.arena_bytes, align_up((rows + 2) * columns * 4, 64));
    // A state that it updates is written over, too.
    Graph accumulating;
    const int state = 0;
    const Tensor before(accumulating, accumulating.add_state({.kind = State::Kind::gradient,
                                                              .name = "before",
                                                              .type = {DType::f32, {rows, columns}},
                                                              .initializer = {}}));
    accumulating.add_update(state, (before + gradient_of(accumulating, "")).value());
    const MemoryPlan in_state = plan_memory(fold_addends(accumulating));
    EXPECT_TRUE(in_state.copied_updates.empty());
    EXPECT_TRUE(in_state.allocations.empty());
}

}  // namespace
}  // namespace mantissa
