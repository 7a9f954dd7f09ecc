#include "mantissa/report/step_estimate.h"

#include <gtest/gtest.h>

namespace mantissa {
namespace {

/// As on a machine that is half as quick as its peaks say: announced were 30 s, and 60 s are what it takes.
TEST(TimeLeft, FollowsWhatRan) {
    TimeLeft left;
    left.add(2, 10);
    left.add(1, 10);
    EXPECT_FALSE(left.is_measured());
    EXPECT_DOUBLE_EQ(left.seconds(), 30);
    left.took(0, 4);
    EXPECT_TRUE(left.is_measured());
    EXPECT_DOUBLE_EQ(left.seconds(), 9 * 4 + 10 * 2);
    // The second part is slower than its estimate by more than the first.
    left.took(1, 5);
    EXPECT_DOUBLE_EQ(left.seconds(), 9 * 4 + 9 * 5);
    for (int step = 0; step < 9; ++step) left.took(0, 4), left.took(1, 5);
    EXPECT_DOUBLE_EQ(left.seconds(), 0);
}

TEST(TimeLeft, NeedsNoEstimate) {
    TimeLeft left;
    left.add(0, 4);
    left.took(0, 3);
    EXPECT_DOUBLE_EQ(left.seconds(), 9);
}

}  // namespace
}  // namespace mantissa
