// Who reads a value: nodes, results, updates and what a pass keeps.
#include "mantissa/passes/analysis/uses.h"

#include <gtest/gtest.h>

#include "mantissa/graph/tensor.h"

namespace mantissa {
namespace {

TEST(Uses, AnOperandThatIsReadTwiceCountsTwice) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {4}}));
    const Tensor square = x * x;
    graph.add_result("square", square.value());
    const Uses uses(graph);
    const NodeId product = square.value().node;
    EXPECT_EQ(uses.of(x.value()), (std::vector<NodeId>{product, product}));
    EXPECT_EQ(uses.of(product), std::vector<NodeId>{-1});
}

TEST(Uses, WhatIsKeptIsReadFromOutside) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {4}}));
    const Tensor kept = exp(x), dead = tanh(x);
    const Value keep = kept.value();
    EXPECT_TRUE(Uses(graph).of(keep).empty());
    EXPECT_EQ(Uses(graph, {&keep, 1}).of(keep), std::vector<NodeId>{-1});
    const std::vector<bool> live = live_nodes(graph, {&keep, 1});
    EXPECT_TRUE(live[static_cast<std::size_t>(x.value().node)]);
    EXPECT_TRUE(live[static_cast<std::size_t>(keep.node)]);
    EXPECT_FALSE(live[static_cast<std::size_t>(dead.value().node)]);
}

TEST(Uses, AViewOfAResultHoldsWhatTheRunGives) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {2, 3}}));
    const Tensor made = exp(x), other = tanh(x);
    graph.add_result("flat", reshape(made, {6}).value());
    graph.add_result("sum", sum(other).value());
    const std::vector<bool> holds = holds_what_a_run_gives(graph);
    EXPECT_TRUE(holds[static_cast<std::size_t>(made.value().node)]);
    EXPECT_FALSE(holds[static_cast<std::size_t>(other.value().node)]);
}

}  // namespace
}  // namespace mantissa
