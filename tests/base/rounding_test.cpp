#include "mantissa/base/rounding.h"

#include <gtest/gtest.h>

namespace mantissa {
namespace {

TEST(Rounding, UpToWholeUnits) {
    EXPECT_EQ(rounded_up(0, 16), 0);
    EXPECT_EQ(rounded_up(1, 16), 16);
    EXPECT_EQ(rounded_up(16, 16), 16);
    EXPECT_EQ(rounded_up(17, 16), 32);
    EXPECT_EQ(rounded_up(7, 1), 7);
}

}  // namespace
}  // namespace mantissa
