// Products of quantised rows: exact in whole numbers, at every level, for one row as for many.
#include "mantissa/device/cpu/modes/quantized.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "mantissa/base/buffer.h"
#include "mantissa/base/error.h"
#include "mantissa/device/cpu/attention/cached.h"
#include "tests/device/levels.h"
#include "tests/device/normal_floats.h"
#include "tests/device/product_in_poison.h"

namespace mantissa::on_cpu {
namespace {

struct Quantized {
    std::vector<std::uint8_t> numbers;
    std::vector<float> scales;
    std::vector<int> plain;  ///< one number each

    Quantized(const std::vector<float>& x, std::int64_t rows, std::int64_t depth, Isa isa) {
        ThreadPool pool(2);
        numbers.resize(static_cast<std::size_t>(rows * depth));
        scales.resize(static_cast<std::size_t>(rows));
        Buffer workspace(static_cast<std::size_t>(quantize_rows_workspace(depth, 2)));
        quantize_rows({.rows = rows,
                       .depth = depth,
                       .x = {x.data()},
                       .numbers = numbers.data(),
                       .scales = scales.data(),
                       .workspace = reinterpret_cast<float*>(workspace.as<std::byte>().data())},
                      pool, isa);
        for (const std::uint8_t number : numbers) plain.push_back(static_cast<std::int8_t>(number));
    }
};

std::vector<float> quantized_y(const std::vector<float>& x, const Quantized& w, std::int64_t m,
                               std::int64_t n, std::int64_t k, const float* bias, int threads, Isa isa) {
    const QuantizedProduct problem{.m = m,
                                   .n = n,
                                   .k = k,
                                   .x = {x.data()},
                                   .w = w.numbers.data(),
                                   .scales = w.scales.data(),
                                   .bias = bias};
    return product_in_poison<quantized_product, quantized_product_workspace>(problem, threads, isa);
}

TEST(Quantized, RowsHaveTheirLargestNumberAtTheEnd) {
    at_every_level([](Isa isa) {
        constexpr int most = 127;
        std::vector<float> x = normal_floats(6 * 34, {.seed = 5, .operation = 1});
        for (std::size_t i = 0; i < 34; ++i) x[34 + i] = 0;
        x[2 * 34 + 5] = -50;
        const Quantized q(x, 6, 34, isa);
        EXPECT_EQ(q.plain[2 * 34 + 5], -most);
        EXPECT_EQ(q.scales[1], 0.0f);
        for (std::size_t i = 0; i < x.size(); ++i) {
            const float scale = q.scales[i / 34];
            // Half a step, and the rounding of factor and product.
            EXPECT_LE(std::abs(x[i] - scale * static_cast<float>(q.plain[i])), scale * 0.5001f) << i;
            EXPECT_LE(std::abs(q.plain[i]), most);
        }
    });
}

TEST(Quantized, ProductsAreExactForOneRowAndForMany) {
    at_every_level([](Isa isa) {
        for (const std::int64_t k : {1, 34, 64, 130, 768})
            for (const std::int64_t n : {1, 5, 67}) {
                const std::int64_t m = 11;
                const std::vector<float> x = normal_floats(m * k, {.seed = 5, .operation = 2}),
                                         w = normal_floats(n * k, {.seed = 5, .operation = 3}),
                                         bias = normal_floats(n, {.seed = 5, .operation = 4});
                const Quantized a(x, m, k, isa), b(w, n, k, isa);
                std::vector<float> expected;
                for (std::int64_t i = 0; i < m; ++i)
                    for (std::int64_t j = 0; j < n; ++j) {
                        int sum = 0;
                        for (std::int64_t d = 0; d < k; ++d)
                            sum += a.plain[static_cast<std::size_t>(i * k + d)] *
                                   b.plain[static_cast<std::size_t>(j * k + d)];
                        const auto row = static_cast<std::size_t>(i), column = static_cast<std::size_t>(j);
                        expected.push_back(static_cast<float>(sum) * (a.scales[row] * b.scales[column]) +
                                           bias[column]);
                    }
                EXPECT_EQ(quantized_y(x, b, m, n, k, bias.data(), 2, isa), expected) << n << " " << k;
                // Each by itself, and some: the rows as they lie.
                for (const std::int64_t rows : {1, 3, 5, 8}) {
                    const std::vector<float> few = quantized_y(x, b, rows, n, k, bias.data(), 1, isa);
                    EXPECT_EQ(few, std::vector<float>(expected.begin(), expected.begin() + rows * n))
                        << rows << " " << n << " " << k;
                }
            }
    });
}

TEST(Quantized, ADepthThatCouldLeave32BitsIsRefused) {
    ThreadPool pool(1);
    try {
        quantized_product({.m = 1, .n = 1, .k = 131072}, pool, Isa::generic);
        FAIL() << "it was multiplied";
    } catch (const UserError& error) {
        EXPECT_STREQ(error.what(),
                     "s8*s8+s32: sums of more than 131071 products could leave 32 bits, K is 131072");
    }
}

TEST(Quantized, AnInfinityOrANaNIsNotLost) {
    at_every_level([](Isa isa) {
        for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
            std::vector<float> x = normal_floats(34, {.seed = 5, .operation = 2}),
                               w = normal_floats(3 * 34, {.seed = 5, .operation = 3});
            x[7] = bad;
            const Quantized b(w, 3, 34, isa);
            for (const float y : quantized_y(x, b, 1, 3, 34, nullptr, 1, isa)) EXPECT_FALSE(std::isfinite(y));
        }
    });
}

TEST(CachedAttention, APositionBeyondTheKeysIsNamed) {
    ThreadPool pool(1);
    float x[16] = {};
    const std::int32_t position = 4;
    CachedAttention problem{.heads = 1,
                            .queries = 1,
                            .keys = 4,
                            .head_size = 4,
                            .q = x,
                            .k = x,
                            .v = x,
                            .positions = &position,
                            .o = x};
    try {
        cached_attention(problem, pool, Isa::generic);
        FAIL() << "it was read";
    } catch (const UserError& error) {
        EXPECT_STREQ(error.what(), "cached_attention: position 4 lies outside of the 4 keys that are kept");
    }
}

}  // namespace
}  // namespace mantissa::on_cpu
