#include "mantissa/base/random.h"

#include <gtest/gtest.h>

#include <cmath>

namespace mantissa {
namespace {

// Known-answer vectors of the Random123 distribution (kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
    EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
              (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
              (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
              (std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, NormalHasTheMomentsOfANormal) {
    const RandomStream stream{.seed = 7, .step = 0, .operation = 3};
    const int count = 200000;
    double sum = 0, squares = 0, fourth = 0;
    for (int i = 0; i < count; ++i) {
        const double x = stream.normal(static_cast<std::uint64_t>(i));
        sum += x;
        squares += x * x;
        fourth += x * x * x * x;
    }
    // Five standard errors of each moment's estimate: sqrt(1/n), sqrt(2/n), sqrt(96/n).
    EXPECT_NEAR(sum / count, 0.0, 5 * std::sqrt(1.0 / count));
    EXPECT_NEAR(squares / count, 1.0, 5 * std::sqrt(2.0 / count));
    EXPECT_NEAR(fourth / count, 3.0, 5 * std::sqrt(96.0 / count));
}

TEST(RandomStream, EveryCoordinateChangesTheNumbers) {
    const RandomStream a{.seed = 1, .step = 2, .operation = 3};
    EXPECT_EQ(a.bits(5), (RandomStream{.seed = 1, .step = 2, .operation = 3}.bits(5)));
    EXPECT_NE(a.bits(5), a.bits(6));
    EXPECT_NE(a.bits(5), (RandomStream{.seed = 2, .step = 2, .operation = 3}.bits(5)));
    EXPECT_NE(a.bits(5), (RandomStream{.seed = 1, .step = 3, .operation = 3}.bits(5)));
    EXPECT_NE(a.bits(5), (RandomStream{.seed = 1, .step = 2, .operation = 4}.bits(5)));
}

TEST(RandomStream, UniformStaysBelowOne) { EXPECT_LT(uniform_from_bits(0xffffffffu), 1.0f); }

}  // namespace
}  // namespace mantissa
