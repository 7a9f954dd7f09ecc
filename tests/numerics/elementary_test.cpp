// Functions of FP32 numbers against the C library's FP64 functions, in ULP.
#include "tests/support/elementary.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include "mantissa/base/thread_pool.h"
#include "mantissa/numerics/formats.h"

namespace mantissa {
namespace {

struct Function {
    const char* name;
    float (*ours)(float);
    double (*oracle)(double);
    double bound;  ///< ULP, as docs/numerics.md states it
    double least;  ///< on the long scan the greatest error is at least this: the bound is not idle
    float greatest = std::numeric_limits<float>::infinity();  ///< from this size on it gives NaN
};

const Function functions[] = {
    {"exp", elementary::exp, [](double x) { return std::exp(x); }, 1.1, 0.9},
    {"log", elementary::log, [](double x) { return std::log(x); }, 2.0, 1.4},
    {"tanh", elementary::tanh, [](double x) { return std::tanh(x); }, 2.0, 1.2},
    {"erf", elementary::erf, [](double x) { return std::erf(x); }, 1.5, 1.0},
    {"sin", elementary::sin, [](double x) { return std::sin(x); }, 2.1, 1.8, 0x1p20f},
    {"cos", elementary::cos, [](double x) { return std::cos(x); }, 2.1, 1.8, 0x1p20f},
    {"log1p", elementary::log1p, [](double x) { return std::log1p(x); }, 2.0, 1.4},
    {"expm1", elementary::expm1, [](double x) { return std::expm1(x); }, 2.0, 1.3},
};

/// Error in ULP of FP32 at the exact value; infinite where a NaN or infinity is wrong. Subnormal results may
/// be zero, and subnormal arguments are left out: both are flushed in kernels.
double error_of(const Function& f, float x) {
    if (std::fpclassify(x) == FP_SUBNORMAL) return 0;
    const double exact = f.oracle(static_cast<double>(x));
    const float got = f.ours(x);
    if (std::fabs(x) >= f.greatest) return std::isnan(got) ? 0 : HUGE_VAL;
    if (std::isnan(exact)) return std::isnan(got) ? 0 : HUGE_VAL;
    const auto rounded = static_cast<float>(exact);
    if (std::isinf(rounded)) return got == rounded ? 0 : HUGE_VAL;
    if (std::fabs(exact) < 0x1p-126) return std::fabs(got) <= 0x1p-126f ? 0 : HUGE_VAL;
    const double error = std::fabs(static_cast<double>(got) - exact) / ulp_at(exact, DType::f32);
    return error >= 0 ? error : HUGE_VAL;
}

TEST(Elementary, DenseSamplesKeepTheBounds) {
    for (const Function& f : functions) {
        double worst = 0;
        float at = 0;
        // Every sign and exponent, 4,096 fractions each with bits that change in all places.
        for (std::uint32_t high = 0; high < 512; ++high)
            for (std::uint32_t k = 0; k < 4096; ++k) {
                const auto x = std::bit_cast<float>((high << 23) | ((k * 2053u + high * 977u) & 0x7fffffu));
                const double error = error_of(f, x);
                if (error > worst) {
                    worst = error;
                    at = x;
                }
            }
        EXPECT_LE(worst, f.bound) << f.name << " at " << at;
        EXPECT_GE(worst, 0.5) << f.name << ": no rounding seen; are the samples good?";
    }
}

TEST(ElementarySlow, EveryThirteenthFloatKeepsTheBounds) {
    ThreadPool pool;
    for (const Function& f : functions) {
        constexpr std::int64_t blocks = 1024;
        std::vector<double> worst(blocks);
        // Every thirteenth of 2^32: all would take ten minutes. Subnormals are flushed, as in kernels.
        pool.for_each_block(blocks, [&](std::int64_t block, int) {
            for (std::uint32_t k = static_cast<std::uint32_t>(block) % 13; k < (1u << 22); k += 13) {
                const auto x = std::bit_cast<float>((static_cast<std::uint32_t>(block) << 22) | k);
                const double error = error_of(f, x);
                if (error > worst[static_cast<std::size_t>(block)])
                    worst[static_cast<std::size_t>(block)] = error;
            }
        });
        double greatest = 0;
        for (double error : worst) greatest = std::fmax(greatest, error);
        EXPECT_LE(greatest, f.bound) << f.name;
        EXPECT_GE(greatest, f.least) << f.name;
        RecordProperty(f.name, std::to_string(greatest));
        std::printf("%s: greatest error %.4f ULP\n", f.name, greatest);
    }
}

TEST(Elementary, SpecialValues) {
    for (const Function& f : functions) EXPECT_TRUE(std::isnan(f.ours(NAN))) << f.name;
    EXPECT_EQ(elementary::exp(INFINITY), INFINITY);
    EXPECT_EQ(elementary::exp(-INFINITY), 0.0f);
    EXPECT_EQ(elementary::exp(0.0f), 1.0f);
    EXPECT_EQ(elementary::exp(-0.0f), 1.0f);
    EXPECT_EQ(elementary::exp(88.72284f), INFINITY);
    EXPECT_LT(elementary::exp(88.72283f), INFINITY);
    EXPECT_EQ(elementary::exp(-88.0f), 0.0f);
    EXPECT_EQ(elementary::log(1.0f), 0.0f);
    EXPECT_EQ(elementary::log(0.0f), -INFINITY);
    EXPECT_EQ(elementary::log(-0.0f), -INFINITY);
    EXPECT_EQ(elementary::log(INFINITY), INFINITY);
    EXPECT_TRUE(std::isnan(elementary::log(-1.0f)));
    EXPECT_TRUE(std::isnan(elementary::log(-INFINITY)));
    EXPECT_EQ(elementary::tanh(INFINITY), 1.0f);
    EXPECT_EQ(elementary::tanh(-20.0f), -1.0f);
    EXPECT_EQ(elementary::erf(-INFINITY), -1.0f);
    EXPECT_EQ(elementary::erf(5.0f), 1.0f);
    EXPECT_TRUE(std::signbit(elementary::tanh(-0.0f)));
    EXPECT_TRUE(std::signbit(elementary::erf(-0.0f)));
    EXPECT_EQ(elementary::log1p(-1.0f), -INFINITY);
    EXPECT_TRUE(std::isnan(elementary::log1p(-1.5f)));
    EXPECT_EQ(elementary::log1p(INFINITY), INFINITY);
    EXPECT_EQ(elementary::log1p(1e-30f), 1e-30f);
    EXPECT_TRUE(std::signbit(elementary::log1p(-0.0f)));
    EXPECT_EQ(elementary::expm1(INFINITY), INFINITY);
    EXPECT_EQ(elementary::expm1(-INFINITY), -1.0f);
    EXPECT_EQ(elementary::expm1(88.72284f), INFINITY);
    EXPECT_TRUE(std::signbit(elementary::expm1(-0.0f)));
}

TEST(Elementary, PowersKeepTheirBound) {
    double worst = 0;
    std::int64_t compared = 0;
    // Numbers of every exponent and close to 1, with results of up to e^87 in size.
    for (std::uint32_t k = 0; k < 4'000'000; ++k) {
        const std::uint32_t bits = k * 2654435761u;
        const float x = k % 2 == 0 ? std::bit_cast<float>(bits & 0x7fffffffu)
                                   : 0.7f + 0.7f * static_cast<float>(bits >> 8) * 0x1p-24f;
        const double exponent = static_cast<double>((k * 40503u) % 174'001) / 1000 - 87;
        const auto y = static_cast<float>(exponent / std::log(static_cast<double>(x)));
        if (!std::isnormal(x) || !std::isnormal(y)) continue;
        const double exact = std::pow(static_cast<double>(x), static_cast<double>(y));
        if (!(exact > 0x1p-125 && exact < 0x1p127)) continue;
        ++compared;
        const double error =
            std::fabs(static_cast<double>(elementary::pow(x, y)) - exact) / ulp_at(exact, DType::f32);
        worst = error <= worst ? worst : error;
    }
    EXPECT_GT(compared, 3'000'000);
    EXPECT_LE(worst, 3.5);
    EXPECT_GE(worst, 2.0) << "the bound is idle";
}

TEST(Elementary, PowersOfSpecialNumbersAreThoseOfC) {
    const float numbers[] = {0.0f,  -0.0f,    1,         -1,  2,    -2,    3,     -3,     0.5f,
                             -0.5f, INFINITY, -INFINITY, NAN, 2.5f, -2.5f, 1e30f, -1e30f, 16777217.0f};
    for (const float x : numbers)
        for (const float y : numbers) {
            const double exact = std::pow(static_cast<double>(x), static_cast<double>(y));
            const float expected = std::fabs(exact) < 0x1p-126
                                       ? std::copysign(0.0f, static_cast<float>(exact))
                                       : static_cast<float>(exact);
            const float got = elementary::pow(x, y);
            if (std::isnan(expected)) {
                EXPECT_TRUE(std::isnan(got)) << x << " ^ " << y;
            } else if (std::isinf(expected) || expected == 0 || std::fabs(expected) == 1) {
                EXPECT_EQ(got, expected) << x << " ^ " << y;
                EXPECT_EQ(std::signbit(got), std::signbit(expected)) << x << " ^ " << y;
            } else {
                EXPECT_LE(std::fabs(got / expected - 1), 0x1p-21f) << x << " ^ " << y;
            }
        }
}

TEST(Elementary, SineIsOddAndCosineEvenAndBothEndAtTwoToTheTwentieth) {
    EXPECT_EQ(elementary::cos(0.0f), 1.0f);
    EXPECT_TRUE(std::signbit(elementary::sin(-0.0f)));
    EXPECT_FALSE(std::isnan(elementary::sin(0x1.fffffep19f)));
    for (const float x : {0x1p20f, -0x1p20f, INFINITY, -INFINITY}) {
        EXPECT_TRUE(std::isnan(elementary::sin(x))) << x;
        EXPECT_TRUE(std::isnan(elementary::cos(x))) << x;
    }
    for (std::uint32_t k = 0; k < 200000; ++k) {
        const auto x = std::bit_cast<float>(k * 5501u);  // up to 2^20
        if (std::isnan(x) || x >= 0x1p20f) continue;
        ASSERT_EQ(elementary::sin(-x), -elementary::sin(x)) << x;
        ASSERT_EQ(elementary::cos(-x), elementary::cos(x)) << x;
        ASSERT_LE(std::fabs(elementary::sin(x)), 1.0f) << x;
        ASSERT_LE(std::fabs(elementary::cos(x)), 1.0f) << x;
    }
}

TEST(Elementary, AnglesNearMultiplesOfAQuarterKeepTheirBits) {
    // The rest of the angle is then far smaller than the angle's own rounding.
    for (int n = 1; n < 600000; n += n < 2000 ? 1 : 997) {
        const auto x = static_cast<float>(n * 1.5707963267948966);
        if (x >= 0x1p20f) break;
        for (const Function& f : functions)
            if (f.greatest == 0x1p20f) {
                ASSERT_LE(error_of(f, x), f.bound) << f.name << " at " << x;
            }
    }
}

TEST(Elementary, TanhAndErfAreOddAndDoNotExceedOne) {
    for (std::uint32_t k = 0; k < 200000; ++k) {
        const auto x = std::bit_cast<float>(k * 10007u & 0x7fffffffu);
        if (std::isnan(x)) continue;
        ASSERT_EQ(elementary::tanh(-x), -elementary::tanh(x)) << x;
        ASSERT_EQ(elementary::erf(-x), -elementary::erf(x)) << x;
        ASSERT_LE(elementary::tanh(x), 1.0f);
        ASSERT_LE(elementary::erf(x), 1.0f);
    }
}

}  // namespace
}  // namespace mantissa
