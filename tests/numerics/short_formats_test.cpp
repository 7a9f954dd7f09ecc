// The formats below sixteen bits: every code, tie and scale against ml_dtypes, which shares nothing with
// ours; and what makes BF16 units multiply them.
#include "mantissa/numerics/short_formats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"
#include "mantissa/numerics/formats.h"
#include "tests/support/torch_fixture.h"

namespace mantissa {
namespace {

const TorchFixture& ml_dtypes() {
    static const TorchFixture fixture("short_formats");
    return fixture;
}

std::vector<float> floats(const std::string& name) {
    std::vector<float> numbers;
    for (const std::int32_t bits : ml_dtypes().values<std::int32_t>(name))
        numbers.push_back(std::bit_cast<float>(bits));
    return numbers;
}

std::string named(ShortFormat format, const char* what) {
    return std::string(limits_of(format).name) + "." + what;
}

/// All magnitudes of a format that are finite and none twice.
std::vector<float> magnitudes(ShortFormat format) {
    std::vector<float> values;
    for (int code = 0; code < 1 << (limits_of(format).bits - 1); ++code) {
        const float value = value_of(format, static_cast<std::uint8_t>(code));
        if (std::isfinite(value)) values.push_back(value);
    }
    return values;
}

TEST(ShortFormats, EveryCodeHasTheValueOfMlDtypes) {
    for (const ShortFormat format : short_formats()) {
        const std::vector<float> expected = floats(named(format, "values"));
        ASSERT_EQ(expected.size(), std::size_t{1} << limits_of(format).bits);
        for (std::size_t code = 0; code < expected.size(); ++code) {
            const float value = value_of(format, static_cast<std::uint8_t>(code));
            ASSERT_TRUE(std::bit_cast<std::uint32_t>(value) == std::bit_cast<std::uint32_t>(expected[code]) ||
                        (std::isnan(value) && std::isnan(expected[code])))
                << limits_of(format).name << " " << code << ": " << value << ", ml_dtypes " << expected[code];
        }
    }
    const std::vector<float> scales = floats("e8m0.values");
    for (int code = 0; code < 255; ++code)
        ASSERT_EQ(value_of_e8m0(static_cast<std::uint8_t>(code)), static_cast<double>(scales[code])) << code;
    EXPECT_TRUE(std::isnan(value_of_e8m0(255)) && std::isnan(scales[255]));
}

TEST(ShortFormats, EveryTieSubnormalAndSaturationRoundsAsMlDtypesDoes) {
    for (const ShortFormat format : short_formats()) {
        const std::vector<float> inputs = floats(named(format, "inputs"));
        const auto codes = ml_dtypes().values<std::int32_t>(named(format, "codes"));
        ASSERT_GT(inputs.size(), 0u);
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            const auto code = static_cast<std::uint8_t>(codes[i]);
            const float rounded = rounded_to(format, inputs[i]);
            // MXINT8 has one zero; every other format has the sign of what became zero.
            ASSERT_EQ(code_of(format, inputs[i]), code) << limits_of(format).name << " of " << inputs[i];
            ASSERT_EQ(rounded, value_of(format, code)) << limits_of(format).name << " of " << inputs[i];
            ASSERT_EQ(std::signbit(rounded), std::signbit(inputs[i]));
            // The same by chance: a value of the format stays, whatever the bits.
            ASSERT_EQ(rounded_to(format, rounded, 0u), rounded);
            ASSERT_EQ(rounded_to(format, rounded, ~0u), rounded);
        }
    }
}

TEST(ShortFormats, LimitsAreThoseOfTheCodes) {
    for (const ShortFormat format : short_formats()) {
        const ShortLimits& of = limits_of(format);
        const std::vector<float> values = magnitudes(format);
        EXPECT_EQ(of.max, values.back()) << of.name;
        EXPECT_EQ(of.min_subnormal(), values[1]) << of.name;
        if (of.exponent_bits > 0) {
            EXPECT_EQ(of.min_normal(), values[1u << of.fraction_bits]) << of.name;
        }
        EXPECT_EQ(of.max_exponent, std::ilogb(of.max)) << of.name;
        EXPECT_EQ(find_short_format(of.name), format);
    }
}

TEST(ShortFormats, ScalesOfBlocksFollowBothRules) {
    for (const ShortFormat format : short_formats()) {
        const std::vector<float> largest = floats(named(format, "largest"));
        const auto floor = ml_dtypes().values<std::int32_t>(named(format, "floor"));
        const auto up = ml_dtypes().values<std::int32_t>(named(format, "up"));
        for (std::size_t i = 0; i < largest.size(); ++i) {
            ASSERT_EQ(e8m0_of(format, largest[i], ScaleRule::floor), floor[i])
                << limits_of(format).name << " of " << largest[i];
            ASSERT_EQ(e8m0_of(format, largest[i], ScaleRule::up), up[i])
                << limits_of(format).name << " of " << largest[i];
            // Nothing saturates by the rule `up`, while the scale is in range.
            if (up[i] == 254) continue;
            const double scale = value_of_e8m0(static_cast<std::uint8_t>(up[i]));
            ASSERT_LE(static_cast<double>(largest[i]) / scale,
                      static_cast<double>(limits_of(format).max) * (1 + 0x1p-23));
        }
        for (const float bad :
             {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
            EXPECT_EQ(e8m0_of(format, bad, ScaleRule::up), 255);
        EXPECT_EQ(e8m0_of(format, 0x1p-127f, ScaleRule::up), 0) << "a subnormal number is taken for zero";
    }
}

/// As the reference rounds them, in blocks. Subnormal numbers are zeros first; a block that holds a NaN or an
/// infinity becomes NaN, for its scale is.
std::vector<float> in_blocks(const std::vector<float>& x, std::int64_t block, ShortFormat element,
                             ScaleRule rule) {
    Graph graph;
    const Value given = graph.add_input("x", {DType::f32, {std::ssize(x)}});
    const NodeId made = graph.add("round_blocks", {given},
                                  {{"axis", std::int64_t{0}},
                                   {"block", block},
                                   {"element", std::string(limits_of(element).name)},
                                   {"rule", std::string(name_of(rule))}});
    const ReferenceRun run(graph, {{"x", {x.begin(), x.end()}}});
    const std::vector<double>& values = run[Value{made, 0}].values;
    std::vector<float> rounded;
    for (const double value : values) rounded.push_back(static_cast<float>(value));
    return rounded;
}

TEST(ShortFormats, BlocksAreThoseOfTorchao) {
    const TorchFixture torchao("short_blocks");
    const auto numbers = [&](const std::string& name) {
        std::vector<float> of_bits;
        for (const std::int32_t bits : torchao.values<std::int32_t>(name))
            of_bits.push_back(std::bit_cast<float>(bits));
        return of_bits;
    };
    for (const auto& [format, rule] : {std::pair{ShortFormat::e4m3, ScaleRule::up},
                                       {ShortFormat::e4m3, ScaleRule::floor},
                                       {ShortFormat::e5m2, ScaleRule::floor},
                                       {ShortFormat::e3m2, ScaleRule::up},
                                       {ShortFormat::e3m2, ScaleRule::floor},
                                       {ShortFormat::e2m3, ScaleRule::up},
                                       {ShortFormat::e2m3, ScaleRule::floor},
                                       {ShortFormat::e2m1, ScaleRule::up},
                                       {ShortFormat::e2m1, ScaleRule::floor}}) {
        const std::vector<float> x = in_blocks(numbers("x"), 32, format, rule);
        const std::string name = named(format, std::string(name_of(rule)).c_str());
        const std::vector<float> expected = numbers(name);
        ASSERT_EQ(x.size(), expected.size());
        for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], expected[i]) << name << " " << i;
    }
}

TEST(ShortFormats, ABlockWithANumberThatIsNotFiniteIsNan) {
    const float nan = std::numeric_limits<float>::quiet_NaN(),
                infinity = std::numeric_limits<float>::infinity();
    for (const float bad : {nan, -infinity})
        for (const std::size_t where : {0u, 1u, 2u}) {
            std::vector<float> block{1, -2, 3};
            block[where] = bad;
            for (const float x : in_blocks(block, 3, ShortFormat::e4m3, ScaleRule::up))
                EXPECT_TRUE(std::isnan(x));
        }
    for (const float x : in_blocks({0.0f, -0.0f, 0x1p-130f}, 3, ShortFormat::e2m1, ScaleRule::floor))
        EXPECT_EQ(x, 0.0f);
}

TEST(ShortFormats, NanStaysOneOrBecomesTheLargest) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const ShortFormat format : short_formats()) {
        EXPECT_TRUE(std::isnan(rounded_to(format, nan)));
        EXPECT_TRUE(std::isnan(rounded_to(format, nan, 5u)));
        const float back = value_of(format, code_of(format, nan));
        EXPECT_TRUE(limits_of(format).has_nan ? std::isnan(back) : back == limits_of(format).max);
    }
}

bool exact_in_bf16(double value) { return rounded_to(value, DType::bf16) == value; }

/// The key of it all: an element times its block's scale is a BF16 number wherever BF16 has normal ones, and
/// the product of two such numbers is exact in FP32.
TEST(ShortFormats, EveryElementTimesItsScaleIsExactInBf16) {
    for (const ShortFormat format : short_formats()) {
        std::int64_t inexact = 0, outside = 0;
        for (const float element : magnitudes(format))
            for (int code = 0; code < 255; ++code) {
                const double product =
                    static_cast<double>(element) * value_of_e8m0(static_cast<std::uint8_t>(code));
                const bool inside = product == 0 || (product >= 0x1p-126 && product <= 0x1.fep127);
                outside += !inside;
                inexact += inside && !exact_in_bf16(product);
            }
        EXPECT_EQ(inexact, 0) << limits_of(format).name;
        // Pairs outside of BF16's normal range, as the study counted them with ml_dtypes.
        if (format == ShortFormat::e4m3) {
            EXPECT_EQ(outside, 284 + 280);
        }
        if (format == ShortFormat::e5m2) {
            EXPECT_EQ(outside, 529 + 480);
        }
        if (format == ShortFormat::e2m1) {
            EXPECT_EQ(outside, 4 + 6);
        }
    }
    for (const float element : magnitudes(ShortFormat::e2m1))
        for (const float scale : magnitudes(ShortFormat::e4m3))
            ASSERT_TRUE(exact_in_bf16(static_cast<double>(element) * static_cast<double>(scale)));
}

/// Numbers of every FP32 exponent: what a block of one becomes is never below BF16's normal numbers, and
/// exact.
TEST(ShortFormats, NoRuleLeavesBf16) {
    const RandomStream random{.seed = 3, .step = 0, .operation = 1};
    for (const ShortFormat format : short_formats())
        for (const ScaleRule rule : {ScaleRule::up, ScaleRule::floor})
            for (std::uint64_t i = 0; i < 20000; ++i) {
                const float x = std::bit_cast<float>(random.bits(i) & 0x7fffffffu);
                if (!std::isnormal(x)) continue;
                const double scale = value_of_e8m0(e8m0_of(format, x, rule));
                // Exact: a power of two, and the format is far from FP32's limits.
                const float scaled = static_cast<float>(static_cast<double>(x) / scale);
                const double value = static_cast<double>(rounded_to(format, scaled)) * scale;
                ASSERT_TRUE(value == 0 || value >= 0x1p-126) << x;
                if (value < 0x1p128) {
                    ASSERT_TRUE(exact_in_bf16(value)) << x;
                }
            }
}

/// Mean of many draws at one value: within 4 sigma of the value itself.
void expect_unbiased(ShortFormat format, float value, std::uint64_t draws, std::uint32_t operation) {
    const RandomStream random{.seed = 11, .step = 2, .operation = operation};
    double sum = 0, squares = 0;
    for (std::uint64_t i = 0; i < draws / 4; ++i)
        for (const std::uint32_t bits : random.block(i)) {
            const double error =
                static_cast<double>(rounded_to(format, value, bits)) - static_cast<double>(value);
            sum += error;
            squares += error * error;
        }
    const auto count = static_cast<double>(draws);
    const double mean = sum / count, sigma = std::sqrt((squares / count - mean * mean) / count);
    EXPECT_LE(std::fabs(mean), 4 * sigma + 1e-12) << limits_of(format).name << " of " << value;
    EXPECT_GT(squares, 0) << "the value is one of the format";
}

TEST(ShortFormats, StochasticRoundingIsUnbiased) {
    std::uint32_t operation = 0;
    for (const ShortFormat format : short_formats())
        for (const float share : {0.013f, -0.31f, 0.77f}) {
            const float max = limits_of(format).max;
            expect_unbiased(format, share * max, 100000, operation++);
            expect_unbiased(format, 1.37f * share * limits_of(format).min_subnormal(), 100000, operation++);
        }
}

TEST(ShortFormatsSlow, StochasticRoundingIsUnbiasedOverTenMillionDraws) {
    std::uint32_t operation = 100;
    for (const ShortFormat format : short_formats())
        expect_unbiased(format, 0.31f * limits_of(format).max, 10000000, operation++);
}

TEST(ShortFormats, TensorScalesAreThoseOfTheRecipes) {
    EXPECT_EQ(tensor_scale(ShortFormat::e4m3, 3.0f), 448.0f / 3.0f);
    EXPECT_EQ(tensor_scale(ShortFormat::e5m2, 3.0f), 57344.0f / 3.0f);
    const float infinity = std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::max();
    for (const float none : {0.0f, infinity, std::numeric_limits<float>::quiet_NaN()}) {
        EXPECT_EQ(tensor_scale(ShortFormat::e4m3, none), 1.0f);
        EXPECT_EQ(two_level_tensor_scale(none), 1.0f);
    }
    EXPECT_EQ(tensor_scale(ShortFormat::e4m3, 0x1p-126f), most);
    // A block of the tensor's largest number has the largest scale of E4M3, and its number becomes 6.
    const float tensor = two_level_tensor_scale(5.0f);
    EXPECT_EQ(two_level_scale(5.0f, tensor).decode, 448.0f);
    EXPECT_EQ(rounded_to(ShortFormat::e2m1, 5.0f * two_level_scale(5.0f, tensor).encode), 6.0f);
    EXPECT_EQ(two_level_scale(0.0f, tensor).decode, 0.0f);
    EXPECT_EQ(two_level_scale(0.0f, tensor).encode, most);
}

TEST(ShortFormats, OtherNamesAreRefused) {
    for (const auto& [name, part] :
         {std::pair{"e4m3fnuz", "AMD's form of MI300"}, {"e4m4", "there are e4m3, e5m2"}}) {
        try {
            find_short_format(name);
            ADD_FAILURE() << name;
        } catch (const UserError& error) {
            EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
        }
    }
}

}  // namespace
}  // namespace mantissa
