// The computation of a graph for each pair of a query and a key, read as an expression.
#include "mantissa/passes/attention/pair_reader.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include "mantissa/graph/tensor.h"
#include "tests/support/attention_graphs.h"

namespace mantissa {
namespace {

using namespace testing::attending;

/// Scores of a graph, read from the weights that are made of them.
struct Reading {
    Graph graph;
    Tensor q = input("q", {B, H, T, D}), k = input("k", {B, H, S, D});
    Tensor product = matmul(q, k, {.transpose_b = true});
    PairExpressions x;
    std::optional<ValueNumbers> numbers;
    std::optional<PairReader> reader;

    Tensor input(const char* name, Shape shape) {
        return {graph, graph.add_input(name, {DType::f32, std::move(shape)})};
    }
    /// -1: it is none, for the reader's reason.
    PairId read(Tensor value) {
        const AxisMap axes(value.shape());
        numbers.emplace(graph);
        reader.emplace(
            graph, *numbers, x,
            PairFrame{.shape = value.shape(), .query_axis = 2, .key_axis = 3, .batch_axes = {0, 1}},
            AxisAtoms{});
        return reader->find_product(value.value(), axes) ? reader->read(value.value(), PairPlace::whole(axes))
                                                         : -1;
    }
};

TEST(PairReader, ReadsTheScaledProduct) {
    Reading scaled;
    EXPECT_EQ(scaled.read(scaled.product * 0.5),
              scaled.x.make("mul", {scaled.x.product(), scaled.x.number(0.5)}));
    EXPECT_EQ(scaled.reader->product(), scaled.product.value());
    EXPECT_TRUE(scaled.reader->operands().empty());
    EXPECT_TRUE(scaled.reader->depends(scaled.product.value().node));
    EXPECT_FALSE(scaled.reader->depends(scaled.q.value().node));
}

TEST(PairReader, WhatFollowsFromPositionsIsMadeInside) {
    Reading masked;
    Graph& graph = masked.graph;
    const Tensor i = iota(graph, {T, S}, 0, DType::i32), j = iota(graph, {T, S}, 1, DType::i32);
    const Tensor hidden = constant(graph, -1e9, DType::f32);
    const PairId read = masked.read(select(less_equal(j, i), masked.product, hidden));
    PairExpressions& x = masked.x;
    const PairId seen = x.make("less_equal", {x.position(3, DType::i32), x.position(2, DType::i32)});
    EXPECT_EQ(read, x.make("select", {seen, x.product(), x.number(-1e9f)}));
    EXPECT_TRUE(masked.reader->operands().empty());
}

TEST(PairReader, WhatDoesNotFollowIsAnOperandWithItsAxes) {
    Reading biased;
    const Tensor bias = biased.input("bias", {H, 1, S});
    const PairId read = biased.read(biased.product + bias);
    ASSERT_EQ(biased.reader->operands().size(), 1u);
    const PairOperand& operand = biased.reader->operands()[0];
    EXPECT_EQ(operand.value, bias.value());
    EXPECT_FALSE(operand.needs_order);
    EXPECT_TRUE(biased.x.contains(read, "operand"));
    const PairId leaf = biased.x.leaf("operand", 0, DType::f32, along_heads | along_keys);
    EXPECT_EQ(read, biased.x.make("add", {biased.x.product(), leaf}));
}

TEST(PairReader, WithoutAProductOrWithTwoThereIsAReason) {
    Reading none;
    none.read(exp(none.input("scores", {B, H, T, S})));
    EXPECT_EQ(none.reader->no_product(),
              "'input' stands between the softmax and a product of queries and keys");
    Reading two;
    EXPECT_EQ(two.read(two.product + matmul(two.q * 2.0, two.k, {.transpose_b = true})), -1);
    EXPECT_EQ(two.reader->reason(), "the scores are made of 2 products of queries and keys");
}

TEST(PairReader, EqualValuesHaveOneNumberWhateverNodeComputesThem) {
    Reading same;
    const Tensor again = matmul(same.q, same.k, {.transpose_b = true}),
                 other = matmul(same.q * 2.0, same.k, {.transpose_b = true});
    const ValueNumbers numbers(same.graph);
    EXPECT_EQ(numbers.of(again.value()), numbers.of(same.product.value()));
    EXPECT_NE(numbers.of(other.value()), numbers.of(same.product.value()));
}

}  // namespace
}  // namespace mantissa
