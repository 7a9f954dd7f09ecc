// Products of bytes, exact at every level, whatever the sizes and the number of threads.
#include "mantissa/device/cpu/modes/byte_product.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "mantissa/base/buffer.h"
#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/device/cpu/modes/byte_kernels.h"
#include "tests/device/levels.h"

namespace mantissa::on_cpu {
namespace {

using Bytes = std::vector<std::int8_t>;
using Sums = std::vector<std::int32_t>;

Bytes operand(std::int64_t rows, std::int64_t k, std::uint64_t seed) {
    const RandomStream random{.seed = seed};
    Bytes bytes(static_cast<std::size_t>(rows * k));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::int8_t>(random.bits(i));
    return bytes;
}

/// The output that is written with a workspace and an output full of ones before.
Sums byte_product(ByteProduct problem, Isa isa, int threads = 1) {
    ThreadPool pool(threads);
    Buffer workspace(byte_product_workspace(problem, isa, threads));
    if (workspace.size() > 0) std::memset(workspace.data(), 0xff, workspace.size());
    Sums d(static_cast<std::size_t>(problem.m * problem.n), -1);
    problem.d = d.data();
    multiply_bytes(problem, workspace.as<std::byte>(), pool, isa);
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
        EXPECT_TRUE(byte_product({.m = m, .n = n, .k = k, .a = a.data(), .b = b.data()}, isa, threads) ==
                    expected)
            << m << " x " << n << " x " << k << " " << name_of(isa);
}

TEST(ByteProducts, AreExactOnAwkwardSizes) {
    for (const std::int64_t m : {1, 7, 8, 9, 17})
        for (const std::int64_t n : {1, 23, 24, 48, 49, 97})
            for (const std::int64_t k : {8, 24, 40, 136}) expect_exact_bytes(m, n, k);
}

TEST(ByteProducts, AreExactAtEveryDepth) {
    for (std::int64_t k = 0; k < 20; ++k) expect_exact_bytes(5, 7, k);
}

TEST(ByteProducts, AreExactOverSeveralBlocksOnAnyNumberOfThreads) {
    for (const int threads : {1, 3}) expect_exact_bytes(203, 801, 64, threads);
}

TEST(ByteProducts, SumsOfTheGreatestProductsAreExact) {
    // -128 times -128 and times 127, as deep as sums may be; a shifted row or a saturating sum would show.
    const std::int64_t k = 131071;
    for (const int other : {-128, 127}) {
        const Bytes a(static_cast<std::size_t>(k), -128),
            b(static_cast<std::size_t>(k), static_cast<std::int8_t>(other));
        for (const Isa isa : testable_levels())
            EXPECT_EQ(byte_product({.m = 1, .n = 1, .k = k, .a = a.data(), .b = b.data()}, isa)[0],
                      static_cast<std::int32_t>(k) * -128 * other)
                << name_of(isa);
    }
}

TEST(ByteProducts, RefuseWithAReason) {
    EXPECT_EQ(refusal(ByteProduct{.m = 1, .n = 1, .k = 131072}),
              "s8*s8+s32: sums of more than 131071 products could leave 32 bits, K is 131072");
    EXPECT_EQ(refusal(ByteProduct{.m = 1, .n = -1, .k = 1}),
              "s8*s8+s32: M, N and K must be 0 or more, got 1, -1 and 1");
    EXPECT_EQ(refusal(ByteProduct{.m = 3, .n = 3, .k = 7}), "");
    ThreadPool pool(1);
    EXPECT_THROW(multiply_bytes({.m = 1, .n = 1, .k = 131072}, {}, pool, Isa::generic), UserError);
}

}  // namespace
}  // namespace mantissa::on_cpu
