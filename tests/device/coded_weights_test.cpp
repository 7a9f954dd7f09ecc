// Weights as codes and scales: what they take, how far they are from what they were, and every level's
// numbers. NF4's codes beside bitsandbytes': nf4_test.cpp.
#include "mantissa/numerics/coded_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/contraction/kernels.h"
#include "mantissa/numerics/formats.h"
#include "tests/device/levels.h"

namespace mantissa {
namespace {

constexpr Layout all_codes[] = {Layout::nf4, Layout::int4, Layout::int8};

std::vector<float> normal_weights(std::int64_t count) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0, 0.02f);
    std::vector<float> weights(static_cast<std::size_t>(count));
    for (float& weight : weights) weight = normal(random);
    return weights;
}

std::vector<std::byte> codes_of(const CodedMatrix& matrix, const std::vector<float>& weights) {
    std::vector<std::byte> codes(static_cast<std::size_t>(coded_bytes(matrix)));
    write_codes(matrix, weights, codes.data());
    return codes;
}

TEST(CodedWeights, TakeSoManyBytes) {
    // A code; an eighth of a byte a block and five a block of blocks; a scale a group; a scale a row.
    EXPECT_EQ(coded_bytes({Layout::nf4, 512, 1024}), (512 * 1024 / 2) + 4 * (32 + 1) + 8192);
    EXPECT_EQ(coded_bytes({Layout::int4, 512, 1024}), 512 * 1024 / 2 + 512 * 32 * 2);
    EXPECT_EQ(coded_bytes({Layout::int8, 512, 1024}), 512 * 1024 + 512 * 4);
    EXPECT_EQ(coded_bytes({Layout::nf4, 1, 3}), 4 + 8 + 1);
    EXPECT_EQ(coded_bytes({Layout::e4m3, 16, 3}), 2 * 16 * 3);
}

/// By hand: 1 is exponent 7 and fraction 0 in E4M3, 15 and 0 in E5M2.
TEST(CodedWeights, Fp8LiesByRowsAndThenTransposed) {
    const std::vector<float> numbers{1, 2, 4, -1, -2, -4};
    for (const auto& [layout, one, octave] : {std::tuple{Layout::e4m3, 0x38, 8}, {Layout::e5m2, 0x3c, 4}}) {
        const CodedMatrix matrix{layout, 2, 3};
        const std::vector<std::byte> codes = codes_of(matrix, numbers);
        std::vector<std::byte> expected;
        for (const int code : {one, one + octave, one + 2 * octave, one | 0x80, (one + octave) | 0x80,
                               (one + 2 * octave) | 0x80,  // and its columns
                               one, one | 0x80, one + octave, (one + octave) | 0x80, one + 2 * octave,
                               (one + 2 * octave) | 0x80})
            expected.push_back(static_cast<std::byte>(code));
        EXPECT_EQ(codes, expected) << name_of(layout);
        std::vector<float> again(4);
        read_codes(matrix, codes.data(), 2, again);
        EXPECT_EQ(again, (std::vector<float>{4, -1, -2, -4})) << name_of(layout);
    }
}

/// The roundings of normally distributed weights, as shares of their standard deviation: NF4's and INT4's by
/// the papers' tables of squared errors, INT8's the step over the root of 12 with the largest of a row at
/// some four deviations.
TEST(CodedWeights, AreAsNearAsTheirFormat) {
    const std::vector<float> weights = normal_weights(64 * 192);
    for (const auto& [layout, least, most] :
         {std::tuple{Layout::nf4, 0.08, 0.10}, {Layout::int4, 0.07, 0.10}, {Layout::int8, 0.004, 0.010}}) {
        const CodedMatrix matrix{layout, 64, 192};
        const std::vector<std::byte> codes = codes_of(matrix, weights);
        std::vector<float> again(weights.size());
        read_codes(matrix, codes.data(), 0, again);
        double squares = 0;
        for (std::size_t i = 0; i < weights.size(); ++i) squares += std::pow(weights[i] - again[i], 2.0);
        const double error = std::sqrt(squares / static_cast<double>(weights.size())) / 0.02;
        EXPECT_GT(error, least) << name_of(layout);
        EXPECT_LT(error, most) << name_of(layout);
        std::vector<float> some(300);
        read_codes(matrix, codes.data(), 1023, some);
        EXPECT_TRUE(std::equal(some.begin(), some.end(), again.begin() + 1023)) << name_of(layout);
    }
}

TEST(CodedWeights, TheLargestOfABlockIsKeptButForItsScale) {
    std::vector<float> row(64, 0.0f);
    row[5] = -3;
    const auto again = [&](Layout layout) {
        const CodedMatrix matrix{layout, 1, 64};
        std::vector<float> values(64);
        read_codes(matrix, codes_of(matrix, row).data(), 0, values);
        return values;
    };
    for (const Layout layout : all_codes) {
        const std::vector<float> values = again(layout);
        EXPECT_FLOAT_EQ(values[5], -3) << name_of(layout);
        EXPECT_EQ(std::abs(values[6]), 0) << name_of(layout);
    }
    row[9] = std::numeric_limits<float>::quiet_NaN();
    for (const Layout layout : all_codes) EXPECT_TRUE(std::isnan(again(layout)[5])) << name_of(layout);
}

TEST(CodedWeights, EveryLevelWidensToTheSameBits) {
    for (const Layout layout : all_codes)
        for (const std::int64_t columns : {64, 100, 250, layout == Layout::int4 ? 30 : 77}) {
            const CodedMatrix matrix{layout, 9, columns};
            std::vector<float> weights = normal_weights(9 * columns);
            weights[static_cast<std::size_t>(3 * columns)] = std::numeric_limits<float>::infinity();
            weights[7] = 1e-41f;  // subnormal, and so is what becomes of it
            const std::vector<std::byte> codes = codes_of(matrix, weights);
            std::vector<float> numbers(weights.size());
            read_codes(matrix, codes.data(), 0, numbers);
            on_cpu::at_every_level([&](on_cpu::Isa isa) {
                const WidenCodes widen = on_cpu::of_level(
                    isa, on_cpu::widen_codes_generic, on_cpu::widen_codes_avx2, on_cpu::widen_codes_avx512);
                for (const auto& [row, column, rows, some] : {std::tuple{0l, 0l, 9l, columns},
                                                              {2l, 5l, 4l, columns - 9},
                                                              {8l, columns - 3, 1l, 2l}}) {
                    std::vector<float> wide(static_cast<std::size_t>(rows * 300), 5.0f);
                    std::vector<BF16> halves(wide.size(), BF16{77});
                    WidenedPart part{.from = source_of(matrix, codes.data()),
                                     .row = row,
                                     .column = column,
                                     .rows = rows,
                                     .columns = some,
                                     .to = wide.data(),
                                     .stride = 300};
                    widen(part);
                    part.dtype = DType::bf16;
                    part.to = halves.data();
                    widen(part);
                    for (std::int64_t i = 0; i < rows; ++i)
                        for (std::int64_t j = 0; j < 300; ++j) {
                            const auto at = static_cast<std::size_t>(i * 300 + j);
                            const bool is_there = j < some;
                            const float expected =
                                is_there ? numbers[static_cast<std::size_t>((row + i) * columns + column + j)]
                                         : 5;
                            ASSERT_EQ(std::memcmp(&wide[at], &expected, 4), 0)
                                << name_of(layout) << " " << i << " " << j;
                            ASSERT_EQ(halves[at].bits, is_there ? to_bf16(expected).bits : 77)
                                << name_of(layout) << " " << i << " " << j;
                        }
                }
            });
        }
}

}  // namespace
}  // namespace mantissa
