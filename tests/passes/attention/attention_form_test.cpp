// One attention around a softmax: what of the graph is its queries, keys, values, scale, mask and score.
#include "mantissa/passes/attention/attention_form.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include "mantissa/graph/tensor.h"
#include "tests/support/attention_graphs.h"

namespace mantissa {
namespace {

using namespace testing::attending;

/// Queries, keys and values, and what is searched for in their graph.
struct Heads {
    Graph graph;
    Tensor q = input("q", {B, H, T, D}), k = input("k", {B, H, S, D}), v = input("v", {B, H, S, D});

    Tensor input(const char* name, Shape shape) {
        return {graph, graph.add_input(name, {DType::f32, std::move(shape)})};
    }
    Tensor scores() { return matmul(q, k, {.transpose_b = true}); }

    AttentionSearch search(Tensor core) const {
        const Uses uses(graph);
        const std::vector<bool> live = live_nodes(graph);
        const ValueNumbers numbers(graph);
        return attention_around({graph, uses, live, numbers}, core.value().node);
    }
};

TEST(AttentionForm, SaysWhatQueriesKeysAndValuesAre) {
    Heads heads;
    const Tensor weights = softmax(heads.scores() * 0.25), y = matmul(weights, heads.v);
    heads.graph.add_result("y", y.value());
    const AttentionSearch search = heads.search(weights);
    ASSERT_TRUE(search.form) << search.form.reason();
    const AttentionForm& form = *search.form;
    EXPECT_EQ(form.root, y.value().node);
    EXPECT_EQ(search.product, y.value().node);
    EXPECT_EQ(form.q.base, heads.q.value());
    EXPECT_EQ(form.k.base, heads.k.value());
    EXPECT_EQ(form.v.base, heads.v.value());
    EXPECT_EQ(form.queries, T);
    EXPECT_EQ(form.keys, S);
    EXPECT_EQ(form.head_size, D);
    EXPECT_EQ(form.scale, 0.25);
    EXPECT_FALSE(form.causal);
    EXPECT_FALSE(form.score);
    EXPECT_TRUE(form.replaced.contains(form.root) && form.replaced.contains(weights.value().node));
    EXPECT_FALSE(form.replaced.contains(heads.q.value().node));
}

TEST(AttentionForm, WhatIsMoreThanAScaleIsItsScore) {
    Heads heads;
    const Tensor bias = heads.input("bias", {H, T, S});
    const Tensor weights = softmax(heads.scores() + bias);
    heads.graph.add_result("y", matmul(weights, heads.v).value());
    const AttentionSearch search = heads.search(weights);
    ASSERT_TRUE(search.form) << search.form.reason();
    ASSERT_TRUE(search.form->score);
    ASSERT_EQ(search.form->score->operands.size(), 1u);
    EXPECT_EQ(search.form->score->operands[0].value, bias.value());
    EXPECT_TRUE(search.form->score->expressions->contains(search.form->score->score, "operand"));
}

TEST(AttentionForm, ASoftmaxThatMeetsNoValuesIsNone) {
    Heads heads;
    const Tensor weights = softmax(heads.scores());
    heads.graph.add_result("weights", weights.value());
    const AttentionSearch search = heads.search(weights);
    ASSERT_FALSE(search.form);
    EXPECT_NE(search.form.reason(), "");
    EXPECT_EQ(search.product, -1);
    EXPECT_TRUE(search.is_softmax);
}

TEST(AttentionForm, ASoftmaxOfNoProductSaysSo) {
    Heads heads;
    const Tensor weights = softmax(heads.input("scores", {B, H, T, S}));
    heads.graph.add_result("y", matmul(weights, heads.v).value());
    const AttentionSearch search = heads.search(weights);
    ASSERT_FALSE(search.form);
    EXPECT_EQ(search.form.reason(), "'input' stands between the softmax and a product of queries and keys");
}

}  // namespace
}  // namespace mantissa
