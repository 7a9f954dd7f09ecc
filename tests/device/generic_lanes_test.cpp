// The lanes in plain C++ promise the bits of the fused instruction on machines that have none.
#include "mantissa/device/cpu/rows/lanes_generic.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "mantissa/base/random.h"

namespace mantissa::inline v0::on_cpu {
namespace {

Lanes::Float sixteen(const float (&values)[16]) {
    Lanes::Float lanes;
    for (int i = 0; i < 16; ++i) lanes.part[i / 4][i % 4] = values[i];
    return lanes;
}

void expect_as_the_library(const float (&a)[16], const float (&b)[16], const float (&c)[16]) {
    const Lanes::Float sum = Lanes::fma(sixteen(a), sixteen(b), sixteen(c));
    for (int i = 0; i < 16; ++i) {
        const float wanted = std::fma(a[i], b[i], c[i]), got = sum.part[i / 4][i % 4];
        if (std::isnan(wanted) && std::isnan(got)) continue;
        ASSERT_EQ(std::bit_cast<std::uint32_t>(wanted), std::bit_cast<std::uint32_t>(got))
            << a[i] << " * " << b[i] << " + " << c[i] << " = " << wanted << ", not " << got;
    }
}

// Each is wrong if the sum is rounded to FP64 and then to FP32: it lies just beside the middle of two
// numbers, which FP64 makes it. The last two are below the least normal number, where the middles lie
// elsewhere.
constexpr float rounded_twice[][3] = {
    {0x1.0002p-12f, 0x1.fffcp-13f, 0x1.000002p+0f},     {0x1.0002p-12f, -0x1.fffcp-13f, -0x1.000002p+0f},
    {0x1.0002p+28f, 0x1.fffcp+27f, 0x1.000002p+80f},    {0x1.0001p-75f, 0x1.fffep-76f, 0x1.000004p-127f},
    {0x1.0001p-75f, -0x1.fffep-76f, -0x1.000004p-127f},
};

TEST(GenericLanes, AFusedMultiplyAddRoundsOnceWhereTwoRoundingsAreWrong) {
    for (const auto& [a, b, c] : rounded_twice) {
        ASSERT_NE(static_cast<float>(static_cast<double>(a) * b + c), std::fma(a, b, c))
            << "no hard case: " << a;
        float as[16], bs[16], cs[16];
        for (int at = 0; at < 16; ++at) {  // alone in each lane
            for (int i = 0; i < 16; ++i) {
                as[i] = i == at ? a : 1;
                bs[i] = i == at ? b : 2;
                cs[i] = i == at ? c : 3;
            }
            expect_as_the_library(as, bs, cs);
        }
    }
}

TEST(GenericLanes, AFusedMultiplyAddOfAnyBitsIsThatOfTheLibrary) {
    // Any bits; few bits, near one another; products below the least normal number; addends far from them.
    const RandomStream random{.seed = 7};
    for (std::uint64_t round = 0; round < 200'000; ++round) {
        float of[3][16];
        for (std::uint64_t operand = 0; operand < 3; ++operand)
            for (std::uint64_t i = 0; i < 16; ++i) {
                const auto words = random.block((round * 3 + operand) * 16 + i);
                std::uint32_t bits = words[0];
                const std::uint32_t exponent = words[1];
                if (round % 4 == 1) bits = (bits & 0x807f8000u) | (120 + exponent % 16) << 23;
                if (round % 4 == 2) bits = (bits & 0x807fffffu) | (operand == 1 ? 100 : exponent % 60) << 23;
                if (round % 4 == 3 && operand == 2) bits = (bits & 0xff800000u) | 1;
                of[operand][i] = std::bit_cast<float>(bits);
            }
        expect_as_the_library(of[0], of[1], of[2]);
        if (HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace mantissa::on_cpu
