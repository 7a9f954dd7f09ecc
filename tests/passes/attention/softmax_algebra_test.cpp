// Products of exponentials, sums over the keys and masks, as weights of attention.
#include "mantissa/passes/attention/softmax_algebra.h"

#include <gtest/gtest.h>

#include <limits>

namespace mantissa {
namespace {

struct Algebra {
    PairExpressions x;
    SoftmaxAlgebra algebra{x};
    PairId s = x.product();
    PairId row = x.leaf("row", 0, DType::f32, along_all & ~unsigned{along_keys});
    PairId seen = x.make("less_equal", {x.position(3, DType::i32), x.position(2, DType::i32)});

    PairId exp(PairId of) { return x.make("exp", {of}); }
    PairId softmax(PairId of) { return x.make("div", {exp(of), x.sum(exp(of))}); }
    Expected<SoftmaxWeights> weights(PairId of) { return algebra.weights(algebra.product_of(of)); }
};

TEST(SoftmaxAlgebra, ExponentialsOverTheirSumAreTheSoftmaxOfWhatChangesAlongTheKeys) {
    Algebra a;
    const auto plain = a.weights(a.softmax(a.s));
    ASSERT_TRUE(plain) << plain.reason();
    EXPECT_EQ(plain->score, a.s);
    EXPECT_TRUE(a.x.is_number(plain->visible, 1));
    EXPECT_TRUE(a.x.is_number(plain->multiplier, 1));
    // A maximum that is taken away, and one from the exponential alone, which a factor gives back.
    const auto shifted = a.weights(a.softmax(a.x.make("sub", {a.s, a.row})));
    ASSERT_TRUE(shifted) << shifted.reason();
    EXPECT_EQ(shifted->score, a.s);
    const auto log_sum = a.x.make("log", {a.x.sum(a.exp(a.s))});
    const auto by_log = a.weights(a.exp(a.x.make("sub", {a.s, log_sum})));
    ASSERT_TRUE(by_log) << by_log.reason();
    EXPECT_EQ(by_log->score, a.s);
}

TEST(SoftmaxAlgebra, AMaskOfTheWeightsThatAreSummedHides) {
    Algebra a;
    const PairId masked = a.x.make("mul", {a.exp(a.s), a.x.cast(a.seen, DType::f32)});
    const auto found = a.weights(a.x.make("div", {masked, a.x.sum(masked)}));
    ASSERT_TRUE(found) << found.reason();
    EXPECT_EQ(found->visible, a.seen);
    EXPECT_EQ(found->score, a.s);
    // Where the sum is that of all, the mask takes weights away behind the softmax.
    const auto behind = a.weights(a.x.make("mul", {a.softmax(a.s), a.x.cast(a.seen, DType::f32)}));
    ASSERT_TRUE(behind) << behind.reason();
    EXPECT_TRUE(a.x.is_number(behind->visible, 1));
    EXPECT_FALSE(a.x.is_number(behind->multiplier, 1));
}

TEST(SoftmaxAlgebra, WhatDoesNotCancelIsRefused) {
    Algebra a;
    const auto without_sum = a.weights(a.exp(a.s));
    EXPECT_FALSE(without_sum);
    EXPECT_NE(without_sum.reason(), "");
    const PairId other_sum = a.x.sum(a.exp(a.x.make("mul", {a.s, a.x.number(2)})));
    EXPECT_FALSE(a.weights(a.x.make("div", {a.exp(a.s), other_sum})));
}

TEST(SoftmaxAlgebra, ALogarithmOfTheSumIsKnown) {
    Algebra a;
    const auto found = a.weights(a.softmax(a.s));
    ASSERT_TRUE(found);
    const PairId sum = a.x.sum(a.exp(a.s));
    EXPECT_TRUE(a.algebra.is_log_of(a.x.make("log", {sum}), found->sum));
    EXPECT_FALSE(a.algebra.is_log_of(a.x.make("log", {a.x.make("mul", {sum, a.x.number(2)})}), found->sum));
    EXPECT_FALSE(a.algebra.is_log_of(sum, found->sum));
}

TEST(SoftmaxAlgebra, ScoresOfMinusInfinityAreHidden) {
    Algebra a;
    const double infinity = std::numeric_limits<double>::infinity();
    const PairId hidden = a.x.make("select", {a.seen, a.s, a.x.number(-infinity)});
    const SoftmaxAlgebra::Masked masked = a.algebra.unmasked(hidden, 1, -infinity);
    EXPECT_EQ(masked.visible, a.seen);
    EXPECT_EQ(masked.score, a.s);
    // A number is one where it is as low as the caller says.
    const PairId low = a.x.make("select", {a.seen, a.s, a.x.number(-1e9)});
    EXPECT_EQ(a.algebra.unmasked(low, 1, -1e8).visible, a.seen);
    EXPECT_TRUE(a.x.is_number(a.algebra.unmasked(low, 1, -1e10).visible, 1));
}

TEST(SoftmaxAlgebra, WhatIsAddedToAWholeRowIsDropped) {
    Algebra a;
    PairSum dropped;
    EXPECT_EQ(a.algebra.changing(a.x.make("add", {a.s, a.row}), dropped), a.s);
    EXPECT_EQ(dropped, (PairSum{{a.row, 1.0}}));
}

}  // namespace
}  // namespace mantissa
