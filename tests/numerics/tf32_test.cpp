// TF32's rounding: ten bits of fraction, and nothing finite becomes infinite.
#include "mantissa/numerics/formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace mantissa {
namespace {

TEST(Tf32, RoundsToTenBitsAndStaysFinite) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(to_tf32(1 + 0x1p-10f), 1 + 0x1p-10f);
    EXPECT_EQ(to_tf32(1 + 0x1p-11f), 1.0f);                    // a tie goes to even
    EXPECT_EQ(to_tf32(1 + 0x1p-10f + 0x1p-11f), 1 + 0x1p-9f);  // upwards, too
    EXPECT_EQ(to_tf32(1 + 0x1p-11f + 0x1p-23f), 1 + 0x1p-10f);
    EXPECT_EQ(to_tf32(-(2 - 0x1p-23f)), -2.0f);  // into the next power of two
    EXPECT_EQ(to_tf32(0x1p-149f), 0.0f);         // FP32's smallest is below half of TF32's
    EXPECT_EQ(to_tf32(0x1p-136f), 0x1p-136f);
    EXPECT_EQ(to_tf32(std::numeric_limits<float>::max()), 0x1.ffcp127f);
    EXPECT_EQ(to_tf32(-infinity), -infinity);
    EXPECT_TRUE(std::isnan(to_tf32(std::numeric_limits<float>::quiet_NaN())));
    EXPECT_TRUE(std::signbit(to_tf32(-0.0f)));
}

}  // namespace
}  // namespace mantissa
