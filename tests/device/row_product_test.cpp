// A few rows of BF16 in dot products of pairs, against the same sums one number at a time, bit by bit.
#include "mantissa/device/cpu/contraction/row_product.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "mantissa/base/random.h"
#include "mantissa/device/cpu/isa.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::on_cpu {
namespace {

std::vector<BF16> normal_bf16(std::int64_t count, std::uint32_t which) {
    const RandomStream random{.seed = 7, .step = 0, .operation = which};
    std::vector<BF16> values;
    for (std::int64_t i = 0; i < count; ++i)
        values.push_back(to_bf16(random.normal(static_cast<std::uint64_t>(i))));
    return values;
}

/// As docs/numerics.md says: sixteen sums of pairs, odd products before even ones, then a tree.
float twin_sum(const BF16* row, const BF16* column, std::int64_t depth) {
    const auto flushed = [](float x) { return std::fpclassify(x) == FP_SUBNORMAL ? 0.0f : x; };
    std::array<float, 16> sums = {};
    const auto add = [&](std::int64_t k) {
        if (k >= depth) return;
        float& sum = sums[static_cast<std::size_t>(k / 2 % 16)];
        sum = flushed(sum + flushed(to_f32(row[k])) * flushed(to_f32(column[k])));
    };
    for (std::int64_t k = 0; k < depth; k += 2) {
        add(k + 1);
        add(k);
    }
    std::array<float, 4> quarters;
    for (std::size_t i = 0; i < 4; ++i)
        quarters[i] = (sums[4 * i] + sums[4 * i + 2]) + (sums[4 * i + 1] + sums[4 * i + 3]);
    return (quarters[0] + quarters[2]) + (quarters[1] + quarters[3]);
}

struct RowProductCase {
    std::int64_t rows, cols, depth;
    std::int64_t row_stride = depth + 3, stride = depth + 5;
    std::vector<BF16> x = normal_bf16(rows * row_stride, 1), w = normal_bf16(cols * stride, 2);

    std::vector<float> products() const {
        const std::int64_t leading = cols + 2;
        std::vector<float> sums(static_cast<std::size_t>(rows * leading), -7.0f), out;
        row_product_of_pairs_avx512_bf16()({.rows = x.data(),
                                            .row_stride = row_stride,
                                            .count = rows,
                                            .b = w.data(),
                                            .stride = stride,
                                            .depth = depth,
                                            .cols = cols,
                                            .sums = sums.data(),
                                            .sums_stride = leading});
        for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t j = 0; j < leading; ++j) {
                const float sum = sums[static_cast<std::size_t>(r * leading + j)];
                if (j < cols)
                    out.push_back(sum);
                else
                    EXPECT_EQ(sum, -7.0f) << "written beside the sums";
            }
        return out;
    }
    std::vector<float> twin() const {
        std::vector<float> out;
        for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t j = 0; j < cols; ++j)
                out.push_back(twin_sum(x.data() + r * row_stride, w.data() + j * stride, depth));
        return out;
    }
};

TEST(RowsOfPairs, HaveTheBitsOfTheirTwin) {
    if (!has_bf16_dot()) GTEST_SKIP() << "no AVX512_BF16";
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 8})
        for (const std::int64_t cols : {1, 2, 3, 7, 16})
            for (const std::int64_t depth : {1, 2, 31, 32, 33, 63, 101, 768}) {
                const RowProductCase c{.rows = rows, .cols = cols, .depth = depth};
                EXPECT_EQ(c.products(), c.twin()) << rows << " " << cols << " " << depth;
            }
}

TEST(RowsOfPairs, TheirBitsBite) {
    if (!has_bf16_dot()) GTEST_SKIP() << "no AVX512_BF16";
    // A number one unit in its last place off, and two that change places, are seen.
    RowProductCase c{.rows = 8, .cols = 3, .depth = 101};
    const std::vector<float> twin = c.twin();
    RowProductCase other = c;
    other.x[50].bits ^= 1;
    EXPECT_NE(other.products(), twin);
    other = c;
    std::swap(other.x[0], other.x[2]);
    std::swap(other.w[0], other.w[2]);
    EXPECT_NE(other.products(), twin);
}

TEST(RowsOfPairs, SubnormalNumbersAreZero) {
    if (!has_bf16_dot()) GTEST_SKIP() << "no AVX512_BF16";
    RowProductCase c{.rows = 2, .cols = 3, .depth = 40};
    for (BF16& x : c.x) x = to_bf16(0x1p-130f);
    for (BF16& w : c.w) w = to_bf16(0x1p+20f);
    for (const float sum : c.products()) EXPECT_EQ(sum, 0.0f);
    for (BF16& x : c.x) x = to_bf16(0x1p-120f);
    for (const float sum : c.products()) EXPECT_EQ(sum, 40 * 0x1p-100f);
}

TEST(RowsOfPairs, InfinitiesAndNansStay) {
    if (!has_bf16_dot()) GTEST_SKIP() << "no AVX512_BF16";
    RowProductCase c{.rows = 4, .cols = 4, .depth = 70};
    c.x[69] = to_bf16(INFINITY);
    c.w[static_cast<std::size_t>(c.stride) + 3] = to_bf16(std::nanf(""));
    const std::vector<float> sums = c.products();
    for (std::size_t r = 0; r < 4; ++r)
        for (std::size_t j = 0; j < 4; ++j) {
            const float sum = sums[4 * r + j];
            EXPECT_EQ(std::isnan(sum), j == 1) << r << " " << j;
            EXPECT_EQ(std::isinf(sum), r == 0 && j != 1) << r << " " << j;
        }
}

}  // namespace
}  // namespace mantissa::on_cpu
