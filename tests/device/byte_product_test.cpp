// Products of bytes, exact at every level, whatever the sizes and the number of threads.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "mantissa/base/buffer.h"
#include "mantissa/base/random.h"
#include "mantissa/device/cpu/contraction/contraction.h"
#include "tests/device/levels.h"

namespace mantissa::on_cpu {
namespace {

using Bytes = std::vector<std::int8_t>;
using Sums = std::vector<std::int32_t>;

Bytes operand(std::int64_t rows, std::int64_t k, std::uint64_t seed) {
    const RandomStream random{.seed = seed};
    Bytes bytes(static_cast<std::size_t>(rows * k));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<std::int8_t>(random.bits(i));
        if (bytes[i] == -128) bytes[i] = 0;
    }
    return bytes;
}

/// a [m, k] times the transpose of b [n, k], k a multiple of 4, with a workspace and an output full of ones
/// before.
Sums byte_product(const Bytes& a, const Bytes& b, std::int64_t m, std::int64_t n, std::int64_t k, Isa isa,
                  int threads = 1) {
    ThreadPool pool(threads);
    const std::int64_t words = k / 4;
    const PreparedContraction prepared =
        prepare_contraction({.m = m,
                             .n = n,
                             .k = words,
                             .a = {.leading = words},
                             .b = {.transpose = Transpose::yes, .leading = words},
                             .out = {.leading = n}},
                            byte_kernels_of(m, isa));
    Buffer workspace(prepared.workspace_bytes(threads));
    if (workspace.size() > 0) std::memset(workspace.data(), 0xff, workspace.size());
    Sums d(static_cast<std::size_t>(m * n), -1);
    contract(prepared, {.a = a.data(), .b = b.data(), .out = d.data()}, workspace.as<std::byte>(), pool);
    for (std::size_t i = 0; i < d.size(); ++i) {
        const auto row = a.begin() + static_cast<std::int64_t>(i) / n * k;
        const auto sum = static_cast<std::uint32_t>(std::accumulate(row, row + k, 0));
        d[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(d[i]) -
                                         prepared.kernels.shift_of_bytes * sum);
    }
    return d;
}

void expect_exact_bytes(std::int64_t m, std::int64_t n, std::int64_t k, int threads = 1) {
    const Bytes a = operand(m, k, 1), b = operand(n, k, 2);
    Sums expected;
    for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
            std::int32_t sum = 0;
            for (std::int64_t at = 0; at < k; ++at)
                sum += a[static_cast<std::size_t>(i * k + at)] * b[static_cast<std::size_t>(j * k + at)];
            expected.push_back(sum);
        }
    for (const Isa isa : testable_levels())
        EXPECT_TRUE(byte_product(a, b, m, n, k, isa, threads) == expected)
            << m << " x " << n << " x " << k << " " << name_of(isa);
}

TEST(ByteProducts, AreExactOnAwkwardSizes) {
    for (const std::int64_t m : {1, 7, 8, 9, 17})
        for (const std::int64_t n : {1, 23, 24, 48, 49, 97})
            for (const std::int64_t k : {8, 24, 40, 136}) expect_exact_bytes(m, n, k);
}

TEST(ByteProducts, AreExactAtEveryDepth) {
    for (std::int64_t k = 0; k < 80; k += 4)
        for (const std::int64_t m : {5, 11}) expect_exact_bytes(m, 7, k);
}

TEST(ByteProducts, AreExactOverSeveralBlocksOnAnyNumberOfThreads) {
    for (const int threads : {1, 3}) expect_exact_bytes(203, 801, 64, threads);
}

TEST(ByteProducts, AreExactOverSeveralChunksOfTheDepth) {
    for (const std::int64_t m : {3, 19}) expect_exact_bytes(m, 51, 6164);
}

TEST(ByteProducts, SumsOfTheGreatestProductsAreExact) {
    // As deep as sums may be; a shifted row or a saturating sum would show. In place no byte is -128.
    const std::int64_t k = 131068;
    for (const std::int64_t m : {1, 9})
        for (const int other : {-128, 127}) {
            const int one = m == 1 ? -127 : -128, two = m == 1 && other < 0 ? -127 : other;
            const Bytes a(static_cast<std::size_t>(m * k), static_cast<std::int8_t>(one)),
                b(static_cast<std::size_t>(k), static_cast<std::int8_t>(two));
            for (const Isa isa : testable_levels())
                EXPECT_EQ(byte_product(a, b, m, 1, k, isa).back(), static_cast<std::int32_t>(k) * one * two)
                    << name_of(isa);
        }
}

}  // namespace
}  // namespace mantissa::on_cpu
