// Products of quantised rows: exact in whole numbers, at every level, for one row as for many.
#include "mantissa/device/cpu/modes/quantized.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "mantissa/base/buffer.h"
#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/device/cpu/attention/cached.h"
#include "tests/device/product_in_poison.h"

namespace mantissa::on_cpu {
namespace {

std::vector<float> normal_values(std::int64_t count, std::uint32_t which) {
    const RandomStream random{.seed = 5, .step = 0, .operation = which};
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(random.normal(static_cast<std::uint64_t>(i)));
    return values;
}

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

std::vector<float> product(const std::vector<float>& x, const Quantized& w, std::int64_t m, std::int64_t n,
                           std::int64_t k, const float* bias, int threads, Isa isa) {
    const QuantizedProduct problem{.m = m,
                                   .n = n,
                                   .k = k,
                                   .x = {x.data()},
                                   .w = w.numbers.data(),
                                   .scales = w.scales.data(),
                                   .bias = bias};
    return product_in_poison<quantized_product, quantized_product_workspace>(problem, threads, isa);
}

template <class Check>
void everywhere(Check check) {
    for (int level = 0; level <= static_cast<int>(best_isa()); ++level) {
        SCOPED_TRACE(name_of(static_cast<Isa>(level)));
        check(static_cast<Isa>(level));
    }
}

TEST(Quantized, RowsHaveTheirLargestNumberAtTheEnd) {
    everywhere([](Isa isa) {
        constexpr int most = 127;
        std::vector<float> x = normal_values(6 * 34, 1);
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
    everywhere([](Isa isa) {
        for (const std::int64_t k : {1, 34, 64, 130, 768})
            for (const std::int64_t n : {1, 5, 67}) {
                const std::int64_t m = 11;
                const std::vector<float> x = normal_values(m * k, 2), w = normal_values(n * k, 3),
                                         bias = normal_values(n, 4);
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
                EXPECT_EQ(product(x, b, m, n, k, bias.data(), 2, isa), expected) << n << " " << k;
                // Each by itself, and some: the rows as they lie.
                for (const std::int64_t rows : {1, 3, 5, 8}) {
                    const std::vector<float> few = product(x, b, rows, n, k, bias.data(), 1, isa);
                    EXPECT_EQ(few, std::vector<float>(expected.begin(), expected.begin() + rows * n))
                        << rows << " " << n << " " << k;
                }
            }
    });
}

TEST(Quantized, AnInfinityOrANaNIsNotLost) {
    everywhere([](Isa isa) {
        for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
            std::vector<float> x = normal_values(34, 2), w = normal_values(3 * 34, 3);
            x[7] = bad;
            const Quantized b(w, 3, 34, isa);
            for (const float y : product(x, b, 1, 3, 34, nullptr, 1, isa)) EXPECT_FALSE(std::isfinite(y));
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
