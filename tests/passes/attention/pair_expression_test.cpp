// Expressions of pairs: spellings of one thing are one expression, and what has two values is not folded.
#include "mantissa/passes/attention/pair_expression.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include <map>

#include "mantissa/graph/reference.h"

namespace mantissa {
namespace {

TEST(PairExpressions, SpellingsOfOneThingAreOneExpression) {
    PairExpressions x;
    const PairId s = x.product(), two = x.number(2), zero = x.number(0);
    EXPECT_EQ(x.make("add", {s, zero}), s);
    EXPECT_EQ(x.make("neg", {x.make("neg", {s})}), s);
    EXPECT_EQ(x.make("div", {s, two}), x.make("mul", {x.number(0.5), s}));
    EXPECT_EQ(x.make("mul", {x.make("mul", {s, two}), two}), x.make("mul", {s, x.number(4)}));
    EXPECT_EQ(x.make("sub", {s, s}), zero);
    EXPECT_EQ(x.make("mul", {two, x.number(3)}), x.number(6));
    EXPECT_NE(x.make("add", {s, two}), x.make("mul", {s, two}));
    EXPECT_NE(x.make("sub", {s, two}), x.make("sub", {two, s}));
}

TEST(PairExpressions, NumbersMadeOfTruthValuesBecomeChoices) {
    PairExpressions x;
    const PairId s = x.product(), i = x.position(2, DType::i32), j = x.position(3, DType::i32);
    const PairId seen = x.make("less_equal", {j, i}), later = x.make("less", {i, j});
    EXPECT_EQ(x.negation(seen), later);
    EXPECT_EQ(x.make("mul", {s, x.cast(seen, DType::f32)}), x.make("select", {seen, s, x.number(0)}));
    EXPECT_TRUE(x.is_number(x.make("logical_and", {seen, later}), 0));
    // Negation is wrong for numbers that may be NaN: the one is not what the other is not.
    const PairId positive = x.make("less", {x.number(0), s});
    EXPECT_EQ(x[x.negation(positive)].op, "not");
    EXPECT_EQ(x.make("select", {x.negation(positive), s, x.number(0)}),
              x.make("select", {positive, x.number(0), s}));
}

TEST(PairExpressions, KnowAlongWhatTheyChange) {
    PairExpressions x;
    const PairId i = x.position(2, DType::f32), j = x.position(3, DType::f32);
    const PairId slope = x.leaf("operand", 0, DType::f32, along_heads);
    const PairId bias = x.make("mul", {slope, x.make("sub", {j, i})});
    EXPECT_EQ(x[bias].axes, along_heads | along_queries | along_keys);
    EXPECT_TRUE(x.changes_along_keys(bias));
    EXPECT_EQ(x[x.sum(bias)].axes, along_heads | along_queries);
    EXPECT_FALSE(x.changes_along_keys(x.sum(bias)));
    EXPECT_TRUE(x.contains(bias, "operand"));
    EXPECT_FALSE(x.contains(bias, "product"));
}

TEST(PairExpressions, ALinearFormOfPositionsIsKnownAndCompared) {
    PairExpressions x;
    const PairId i = x.position(2, DType::i32), j = x.position(3, DType::i32);
    const PairId ahead = x.make("add", {x.make("sub", {j, i}), x.number(3, DType::i32)});
    const auto form = x.linear(ahead);
    ASSERT_TRUE(form);
    EXPECT_EQ(form->weights, (std::array<double, 4>{0, 0, -1, 1}));
    EXPECT_EQ(form->offset, 3);
    EXPECT_FALSE(x.linear(x.make("mul", {i, j})));
    const PairId further = x.make("add", {x.make("sub", {j, i}), x.number(4, DType::i32)});
    EXPECT_TRUE(x.is_number(x.make("less", {ahead, further}), 1));
    EXPECT_TRUE(x.is_number(x.make("less_equal", {further, ahead}), 0));
}

TEST(PairExpressions, AnEmittedExpressionComputesWhatItSays) {
    PairExpressions x;
    const PairId s = x.product(), i = x.position(2, DType::f32), j = x.position(3, DType::f32);
    const PairId score = x.make(
        "select", {x.make("less_equal", {j, i}), x.make("sub", {s, x.make("sub", {i, j})}), x.number(-7)});
    Graph graph;
    std::map<PairId, Tensor> made{{s, Tensor(graph, graph.add_input("s", {DType::f32, {1, 1, 2, 3}}))}};
    graph.add_result("score", x.emit(graph, score, made, DType::f32, {1, 1, 2, 3}).value());
    const ReferenceRun run(graph, {{"s", {10, 20, 30, 40, 50, 60}}});
    EXPECT_EQ(run.result("score").values, (std::vector<double>{10, -7, -7, 39, 50, -7}));
}

}  // namespace
}  // namespace mantissa
