// Graphs that are almost attention: under a score or a mask of their own they are found with that, and else
// they stay as they were, with a reason.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/attention/match_attention.h"
#include "tests/support/attention_graphs.h"

namespace mantissa {
namespace {

using namespace testing::attending;

Tensor with_mask(Given& g, Tensor sees) {
    return matmul(softmax(select(sees, g.scores(g.q(), g.k()) / root, g.number(-infinity))), g.v());
}

/// Each is attention under a score or a mask of its own: what it becomes.
const std::vector<NearMiss> other_scores = {
    {"the diagonal is hidden", "s where j < i",
     [](Given& g) { return with_mask(g, less(g.keys(), g.queries())); }},
    {"one later key is shown", "s where j <= i + 1",
     [](Given& g) { return with_mask(g, less_equal(g.keys(), g.queries() + 1.0)); }},
    {"a causal mask that starts at the first key", "s where j <= i",
     [](Given& g) {
         const Tensor k = g.input("k", {B, H, T + 3, D}), v = g.input("v", {B, H, T + 3, D});
         const Tensor sees = less_equal(g.keys({T, T + 3}), g.queries({T, T + 3}));
         return matmul(softmax(select(sees, g.scores(g.q(), k), g.number(-infinity))), v);
     }},
    {"keys before the query are hidden", "s where i <= j",
     [](Given& g) { return with_mask(g, less_equal(g.queries(), g.keys())); }},
    {"every second key", "s where 2 * j <= i",
     [](Given& g) { return with_mask(g, less_equal(g.keys() * 2.0, g.queries())); }},
    {"the diagonal alone", "s where j == i",
     [](Given& g) { return with_mask(g, equal(g.keys(), g.queries())); }},
    {"a window", "s where j <= i and i < j + 3",
     [](Given& g) { return with_mask(g, logical_and(g.visible(), less(g.queries(), g.keys() + 3.0))); }},
    {"padding", "s where j < 3",
     [](Given& g) { return with_mask(g, less(g.keys(), constant(g.graph, 3, DType::i32))); }},
    {"a mask from data", "s where x1[i, j]",
     [](Given& g) {
         return with_mask(g, g.input("mask", {T, T}, DType::boolean));
     }},
    {"a mask that differs between heads", "s where j <= i + h",
     [](Given& g) {
         const Shape all{H, T, T};
         return with_mask(g,
                          less_equal(iota(g.graph, all, 2), iota(g.graph, all, 1) + iota(g.graph, all, 0)));
     }},
    {"masked scores still weigh", "s + (j <= i ? 0 : -10)",
     [](Given& g) {
         const Tensor bias = select(g.visible(), g.number(0), g.number(-10));
         return matmul(softmax(g.scores(g.q(), g.k()) + bias), g.v());
     }},
    {"masked scores become 0", "j <= i ? s : 0",
     [](Given& g) { return matmul(softmax(g.scores(g.q(), g.k()) * g.triangle(T)), g.v()); }},
    {"a bias that grows with the distance", "s + j / 4 where j <= i",
     [](Given& g) {
         const Tensor distance = cast(g.keys() - g.queries(), DType::f32);
         return matmul(softmax(g.masked(g.scores(g.q(), g.k()) + distance * 0.25)), g.v());
     }},
};

const std::vector<NearMiss> near_products = {
    {"softmax over the queries", "does not run over the positions that the product with the values sums",
     [](Given& g) {
         const Tensor w = softmax(transpose(g.scores(g.q(), g.k()), {0, 1, 3, 2}));
         return matmul(transpose(w, {0, 1, 3, 2}), g.v());
     }},
    {"softmax written out over the heads", "does not run over the positions",
     [](Given& g) {
         const Tensor e = exp(g.scores(g.q(), g.k()));
         return matmul(e / sum(e, {1}, KeepAxes::yes), g.v());
     }},
    {"weights used elsewhere too", "the weights are used elsewhere too, by 'matmul', 'sum'",
     [](Given& g) {
         const Tensor w = softmax(g.scores(g.q(), g.k()));
         const Tensor y = matmul(w, g.v());
         return y + sum(w, {0, 1, 2, 3});
     }},
    {"scores used elsewhere too", "the output of 'matmul' is used elsewhere too, by 'result'",
     [](Given& g) {
         const Tensor s = g.scores(g.q(), g.k());
         g.graph.add_result("scores", s.value());
         return matmul(softmax(s * 0.5), g.v());
     }},
    {"scores without a gradient", "'stop_gradient' stands between",
     [](Given& g) { return matmul(softmax(stop_gradient(g.scores(g.q(), g.k()))), g.v()); }},
    {"a softmax of data", "'input' stands between",
     [](Given& g) {
         return matmul(softmax(g.input("s", {B, H, T, T})), g.v());
     }},
    {"a softmax that is a result", "the weights are a result of the graph",
     [](Given& g) { return softmax(g.scores(g.q(), g.k())); }},
    {"weights that are squared", "divided by more than their sum over the keys",
     [](Given& g) {
         const Tensor w = softmax(g.scores(g.q(), g.k()));
         return matmul(w * w, g.v());
     }},
    {"weights changed before the product", "the weights go into 'exp', not into a product with values",
     [](Given& g) { return matmul(exp(softmax(g.scores(g.q(), g.k()))), g.v()); }},
    {"values of another head size", "queries and keys have 4 elements, values 7",
     [](Given& g) {
         return matmul(softmax(g.scores(g.q(), g.k())), g.input("v", {B, H, T, 7}));
     }},
    {"scores of other positions", "the scores' rows and columns are not the queries and keys",
     [](Given& g) {
         const Tensor s =
             reshape(g.scores(g.input("q", {B, T, H, D}), g.input("k", {B, T, H, D})), {B, T, H, H});
         return matmul(softmax(transpose(s, {0, 2, 1, 3})), g.input("v", {B, H, H, D}));
     }},
    {"exponentials that are not normalised", "not divided by their sum over the keys",
     [](Given& g) { return matmul(exp(g.scores(g.q(), g.k())), g.v()) / 2.0; }},
    {"the sum of other exponentials", "divided by the sum of other exponentials",
     [](Given& g) {
         const Tensor s = g.scores(g.q(), g.k());
         return matmul(exp(s) / sum(exp(s * 1.01), {-1}, KeepAxes::yes), g.v());
     }},
    {"a sum over masked pairs of what is not masked", "divided by a sum over other pairs",
     [](Given& g) {
         const Tensor e = exp(g.scores(g.q(), g.k()));
         return matmul(e / sum(e * g.triangle(T), {-1}, KeepAxes::yes), g.v());
     }},
    {"a sum without a gradient", "not divided by their sum over the keys",
     [](Given& g) {
         const Tensor e = exp(g.scores(g.q(), g.k()));
         return matmul(e / stop_gradient(sum(e, {-1}, KeepAxes::yes)), g.v());
     }},
    {"a gate for each key before weights are normalised again", "not 0 or 1 before they are normalised",
     [](Given& g) {
         const Tensor w = softmax(g.scores(g.q(), g.k())) * g.input("gate", {T});
         return matmul(w / sum(w, {-1}, KeepAxes::yes), g.v());
     }},
    {"another maximum", "multiplied by an exponential that does not cancel",
     [](Given& g) {
         const Tensor s = g.scores(g.q(), g.k());
         const Tensor e = exp(s - max(s, {-1}, KeepAxes::yes));
         return matmul(e / sum(exp(s), {-1}, KeepAxes::yes), g.v());
     }},
    {"two products", "the scores are made of 2 products of queries and keys",
     [](Given& g) {
         const Tensor s = g.scores(g.q(), g.k()) + g.scores(g.head_major("p"), g.head_major("r"));
         return matmul(softmax(s), g.v());
     }},
    {"weights times the scores", "multiplied by something of the scores",
     [](Given& g) {
         const Tensor s = g.scores(g.q(), g.k());
         return matmul(softmax(s) * s, g.v());
     }},
    {"weights times the maximum", "something of the scores that does not cancel",
     [](Given& g) {
         const Tensor s = g.scores(g.q(), g.k());
         return matmul(softmax(s) * max(s, {-1}, KeepAxes::yes), g.v());
     }},
    {"a maximum that is read elsewhere", "the output of 'max' is used elsewhere too, by 'result'",
     [](Given& g) {
         const Tensor s = g.scores(g.q(), g.k());
         const Tensor m = max(s, {-1}, KeepAxes::yes);
         g.graph.add_result("m", m.value());
         const Tensor e = exp(s - m);
         return matmul(e / sum(e, {-1}, KeepAxes::yes), g.v());
     }},
    {"a softmax of a softmax", "depend on all scores of their query",
     [](Given& g) { return matmul(softmax(softmax(g.scores(g.q(), g.k()))), g.v()); }},
    {"scores that are normalised", "'layer_norm' stands between",
     [](Given& g) {
         const Tensor s = layer_norm(g.scores(g.q(), g.k()), g.input("gamma", {T}), g.input("beta", {T}));
         return matmul(softmax(s), g.v());
     }},
    {"a sink that depends on the scores", "the logit that is no key's depends on the scores",
     [](Given& g) {
         const Tensor s = g.scores(g.q(), g.k());
         const Tensor e = exp(s);
         const Tensor sink = exp(max(s, {-1}, KeepAxes::yes));
         return matmul(e / (sum(e, {-1}, KeepAxes::yes) + sink), g.v());
     }},
    {"a sum over the queries", "does not run over the positions",
     [](Given& g) {
         const Tensor e = exp(g.scores(g.q(), g.k()));
         return matmul(e / sum(e, {-2}, KeepAxes::yes), g.v());
     }},
    {"divided by a sum of another query", "does not run over the positions",
     [](Given& g) {
         const Tensor e = exp(g.scores(g.q(), g.k()));
         return matmul(e / transpose(sum(e, {-1}, KeepAxes::yes), {0, 1, 3, 2}), g.v());
     }},
    {"a mask that hides every key", "no query sees a key",
     [](Given& g) { return with_mask(g, less(g.keys(), constant(g.graph, 0, DType::i32))); }},
};

TEST(MatchAttention, WhatIsMoreThanScaleAndCausalMaskIsTheScore) {
    for (const NearMiss& other : other_scores) {
        SCOPED_TRACE(other.name);
        Given given;
        given.graph.add_result("y", other.build(given).value());
        const AttentionMatch match = match_attention(given.graph);
        for (const PassRefusal& refusal : match.refused) ADD_FAILURE() << refusal.reason;
        EXPECT_EQ(match.matched, 1);
        verify(match.graph, "match_attention");
        EXPECT_EQ(formula_of(match.graph), other.reason);
        // A softmax of nothing but -infinity is not a number; attention gives zero there.
        const ReferenceTensor x = ReferenceRun(given.graph, given.feed).result("y");
        const ReferenceTensor y = ReferenceRun(match.graph, given.feed).result("y");
        for (std::size_t i = 0; i < x.values.size(); ++i)
            EXPECT_NEAR(y.values[i], std::isnan(x.values[i]) ? 0 : x.values[i], 1e-13);
    }
}

TEST(MatchAttention, LeavesNearMissesAsTheyWereAndSaysWhy) {
    for (const NearMiss& miss : near_products) {
        SCOPED_TRACE(miss.name);
        Given given;
        const OriginScope scope(given.graph, "attn");
        given.graph.add_result("y", miss.build(given).value());
        const AttentionMatch match = match_attention(given.graph);
        EXPECT_EQ(match.matched, 0);
        EXPECT_EQ(print(match.graph), print(given.graph));
        ASSERT_GE(match.refused.size(), 1u);
        std::string reasons;
        for (const PassRefusal& refusal : match.refused) reasons += refusal.reason + "; ";
        EXPECT_NE(reasons.find(miss.reason), std::string::npos) << reasons;
        EXPECT_EQ(match.refused[0].text(), "attn: " + match.refused[0].reason);
    }
}

}  // namespace
}  // namespace mantissa
