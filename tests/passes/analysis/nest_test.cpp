// The computations of one pair of loops: how each value varies, how operands are read, and why others are no
// nest.
#include "mantissa/passes/analysis/nest.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include "mantissa/graph/tensor.h"

namespace mantissa {
namespace {

Tensor input(Graph& graph, const char* name, Shape shape, DType dtype = DType::f32) {
    return {graph, graph.add_input(name, {dtype, std::move(shape)})};
}

TEST(Nest, ValuesVaryByRowByColumnOrByBoth) {
    Graph graph;
    const Tensor x = input(graph, "x", {4, 6}), bias = input(graph, "bias", {6});
    const Tensor y = x + bias, sums = sum(y, {1}), z = y - reshape(sums, {4, 1});
    const auto nest = make_nest(graph);
    ASSERT_TRUE(nest) << nest.reason();
    EXPECT_FALSE(nest->flat);
    EXPECT_EQ(nest->rows, 4);
    EXPECT_EQ(nest->columns, 6);
    EXPECT_EQ(nest->values.at(y.value()), Varies::by_both);
    EXPECT_EQ(nest->values.at(sums.value()), Varies::by_row);
    EXPECT_EQ(nest->values.at(z.value()), Varies::by_both);
    EXPECT_EQ(nest->reads.at({y.value().node, 0}), (Access{.rows = true, .columns = true}));
    EXPECT_EQ(nest->reads.at({y.value().node, 1}), (Access{.columns = true}));
    EXPECT_EQ(reduces(graph, graph.node(sums.value().node)), Reduces::row);
}

TEST(Nest, ElementwiseWorkIsOneLongRowUnlessRowsAreAskedFor) {
    Graph graph;
    exp(input(graph, "x", {4, 6}) * input(graph, "y", {4, 6}));
    const auto flat = make_nest(graph), rows = make_nest(graph, Loops::rows_and_columns);
    ASSERT_TRUE(flat && rows);
    EXPECT_TRUE(flat->flat);
    EXPECT_EQ(flat->rows * flat->columns, 24);
    EXPECT_FALSE(rows->flat);
    EXPECT_EQ(rows->rows, 4);
}

TEST(Nest, AnOperandRepeatedAlongOuterAxesIsReadInItsOwnRow) {
    Graph graph;
    const Tensor scores = input(graph, "scores", {2, 3, 5, 8}), mask = input(graph, "mask", {5, 8});
    const Tensor masked = scores + mask;
    sum(masked, {3});
    const auto nest = make_nest(graph);
    ASSERT_TRUE(nest) << nest.reason();
    EXPECT_EQ(nest->rows, 30);
    EXPECT_EQ(nest->reads.at({masked.value().node, 1}),
              (Access{.rows = true, .columns = true, .divide = 1, .modulo = 5}));
}

TEST(Nest, ASumOverAllRowsIsFinishedOnlyWithTheNest) {
    Graph graph;
    const Tensor x = input(graph, "x", {4, 6}), columns = sum(x, {0});
    EXPECT_TRUE(make_nest(graph));
    exp(x - columns);
    const auto nest = make_nest(graph);
    ASSERT_FALSE(nest);
    EXPECT_NE(nest.reason(), "");
}

TEST(Nest, WhatNoNestHoldsHasAReason) {
    Graph graph;
    const Tensor x = input(graph, "x", {4, 6}), y = input(graph, "y", {6, 4});
    const Tensor product = matmul(x, y), shown = exp(x);
    EXPECT_NE(refuse_in_nest(graph, graph.node(product.value().node)), "");
    EXPECT_EQ(refuse_in_nest(graph, graph.node(shown.value().node)), "");
    EXPECT_FALSE(make_nest(graph));
    EXPECT_GT(nest_instructions("exp"), nest_instructions("add"));
}

}  // namespace
}  // namespace mantissa
