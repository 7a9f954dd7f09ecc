// Storage in 8 and 4 bits, and distances in units of the last place.

#include <gtest/gtest.h>

#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#include <vector>

#include "mantissa/numerics/formats.h"
#include "tests/support/ulp_distance.h"

namespace mantissa {
namespace {

TEST(IntegerFormats, WholeNumbersMakeTheRoundTripAndTiesGoToEven) {
    for (int whole = -128; whole <= 127; ++whole) {
        const auto value = static_cast<float>(whole);
        EXPECT_EQ(to_s8(value), whole);
        const int even = whole % 2 == 0 ? whole : whole + 1;
        EXPECT_EQ(to_s8(value + 0.5f), std::min(even, 127)) << whole;
        EXPECT_EQ(to_s8(std::nextafter(value + 0.5f, -INFINITY)), whole);
        EXPECT_EQ(to_s8(std::nextafter(value + 0.5f, INFINITY)), std::min(whole + 1, 127));
    }
}

TEST(IntegerFormats, SaturateAndMakeZeroOfNan) {
    for (const float large : {127.5f, 128.0f, 1e9f, 3e38f, INFINITY}) {
        EXPECT_EQ(to_s8(large), 127) << large;
        EXPECT_EQ(to_s8(-large - 1), -128) << large;
    }
    EXPECT_EQ(to_s8(NAN), 0);
    EXPECT_EQ(to_s8(-1e-40f), 0);
}

TEST(IntegerFormats, RoundWhateverTheModeOfTheMoment) {
    for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST}) {
        std::fesetround(mode);
        const int below = to_s8(2.25f), above = to_s8(2.75f), tie = to_s8(-2.5f);
        std::fesetround(FE_TONEAREST);
        EXPECT_EQ(below, 2);
        EXPECT_EQ(above, 3);
        EXPECT_EQ(tie, -2);
    }
}

TEST(IntegerFormats, PackedNumbersStandWhereTheyWerePut) {
    std::uint8_t halves[8] = {};
    for (int i = 0; i < 16; ++i) set_s4(halves, i, static_cast<std::int8_t>(i - 8));
    for (int i = 0; i < 16; ++i) EXPECT_EQ(s4_at(halves, i), i - 8);
    EXPECT_EQ(halves[0], 0x98);  // -8 in the lower half, -7 in the upper
    set_s4(halves, 0, 7);
    EXPECT_EQ(s4_at(halves, 0), 7);
    EXPECT_EQ(s4_at(halves, 1), -7);
}

TEST(UlpDistance, CountsTheNumbersBetween) {
    EXPECT_EQ(ulp_distance(1.0f, 1.0f), 0u);
    EXPECT_EQ(ulp_distance(0.0f, -0.0f), 0u);
    EXPECT_EQ(ulp_distance(1.0f, std::nextafter(1.0f, 2.0f)), 1u);
    EXPECT_EQ(ulp_distance(1e-45f, -1e-45f), 2u);
    EXPECT_EQ(ulp_distance(1.0, 2.0), std::uint64_t{1} << 52);
    EXPECT_EQ(ulp_distance(std::numeric_limits<float>::max(), INFINITY), 1u);
    EXPECT_EQ(ulp_distance(-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()),
              2 * 0x7ff0000000000000u);
    EXPECT_EQ(ulp_distance(to_bf16(1.0f), to_bf16(-1.0f)), 2 * 0x3f80u);
    EXPECT_EQ(ulp_distance(to_fp16(65504.0f), to_fp16(INFINITY)), 1u);
    EXPECT_EQ(ulp_distance(NAN, NAN), ulp_distance_of_nan);
    EXPECT_EQ(ulp_distance(1.0f, NAN), ulp_distance_of_nan);
    EXPECT_EQ(ulp_distance(to_fp16(NAN), to_fp16(1.0f)), ulp_distance_of_nan);
    EXPECT_EQ(ulp_distance(BF16{0x7f81}, BF16{0xff81}), ulp_distance_of_nan);
}

TEST(UlpDistance, IsOneBetweenAllNeighboursOf16BitFormats) {
    for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
        const auto low = static_cast<std::uint16_t>(bits), high = static_cast<std::uint16_t>(bits + 1);
        ASSERT_EQ(ulp_distance(FP16{low}, FP16{high}), 1u);
        ASSERT_EQ(ulp_distance(BF16{static_cast<std::uint16_t>(high | 0x8000)},
                               BF16{static_cast<std::uint16_t>(low | 0x8000)}),
                  1u);
    }
}

}  // namespace
}  // namespace mantissa
