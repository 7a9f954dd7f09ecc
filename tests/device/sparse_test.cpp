// 2:4 sparse operands as they are stored: pruned, compressed, filled up again, refused.
#include "mantissa/device/cpu/sparse.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"

namespace mantissa::on_cpu {
namespace {

using Bytes = std::vector<std::byte>;

TEST(Sparse, KeepsTheTwoGreatestOfFour) {
    float row[] = {1,     -3, 2,     0.5f, 2,      2,    2,
                   2,     0,  -0.0f, 0,    1e-30f, 1e9f, std::numeric_limits<float>::quiet_NaN(),
                   -2e9f, 1};
    prune(SparseFormat::f32, row, 1, 16);
    const float expected[] = {0, -3, 2, 0, 2, 2, 0, 0, 0, 0, 0, 1e-30f, 0};
    for (std::size_t i = 0; i < 13; ++i) EXPECT_EQ(row[i], expected[i]) << i;
    EXPECT_TRUE(std::isnan(row[13]));
    EXPECT_EQ(row[14], -2e9f);
    EXPECT_EQ(row[15], 0.0f);
}

TEST(Sparse, EveryFormatMakesTheRoundTrip) {
    for (const SparseFormat format :
         {SparseFormat::f32, SparseFormat::f16, SparseFormat::bf16, SparseFormat::s8, SparseFormat::s4}) {
        constexpr std::int64_t rows = 5, k = 20;  // five groups a row: half a byte of positions is left over
        const SparseSizes sizes = sparse_sizes(format, rows, k), of_row = sparse_sizes(format, 1, k);
        EXPECT_EQ(sizes.positions, 15u);
        EXPECT_EQ(2 * sizes.values, sizes.dense);
        const RandomStream random{.seed = 4};
        Bytes dense(sizes.dense), values(sizes.values), back(sizes.dense, std::byte{0xff});
        for (std::size_t i = 0; i < dense.size(); ++i) dense[i] = static_cast<std::byte>(random.bits(i));
        prune(format, dense.data(), rows, k);
        std::vector<std::uint8_t> positions(sizes.positions);
        compress(format, dense.data(), rows, k, values.data(), positions.data());
        for (std::size_t row = 0; row < rows; ++row)
            decompress_row(format, values.data() + row * of_row.values,
                           positions.data() + row * of_row.positions, k, back.data() + row * of_row.dense);
        EXPECT_TRUE(back == dense) << static_cast<int>(format);
    }
}

std::string error_of(SparseFormat format, const void* matrix, std::int64_t rows, std::int64_t k) {
    Bytes values(1000);
    std::vector<std::uint8_t> positions(1000);
    try {
        compress(format, matrix, rows, k, values.data(), positions.data());
    } catch (const UserError& error) {
        return error.what();
    }
    return "compressed";
}

TEST(Sparse, RefusesWhatIsNotTwoOfFour) {
    std::vector<std::int8_t> matrix(4 * 12, 0);
    EXPECT_EQ(error_of(SparseFormat::s8, matrix.data(), 4, 12), "compressed");
    for (const int column : {8, 9, 11}) matrix[static_cast<std::size_t>(3 * 12 + column)] = 1;
    EXPECT_EQ(
        error_of(SparseFormat::s8, matrix.data(), 4, 12),
        "not 2:4 sparse: row 3, columns 8 to 11 hold 3 numbers that are not zero, at most 2 may be; prune "
        "it first");
    EXPECT_EQ(error_of(SparseFormat::s8, matrix.data(), 4, 10),
              "2:4 sparse rows consist of groups of four: K must be a multiple of 4, got 10");
}

}  // namespace
}  // namespace mantissa::on_cpu
