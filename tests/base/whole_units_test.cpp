#include "mantissa/base/whole_units.h"

#include <gtest/gtest.h>

namespace mantissa {
namespace {

TEST(WholeUnits, HoldTheSize) {
    EXPECT_EQ(align_up(0, 16), 0);
    EXPECT_EQ(align_up(1, 16), 16);
    EXPECT_EQ(align_up(16, 16), 16);
    EXPECT_EQ(align_up(17, 16), 32);
    EXPECT_EQ(align_up(7, 1), 7);
    EXPECT_EQ(ceil_div(0, 16), 0);
    EXPECT_EQ(ceil_div(17, 16), 2);
    EXPECT_EQ(in_lines(65), 128);
}

}  // namespace
}  // namespace mantissa
