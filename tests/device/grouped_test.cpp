// Products with weights of four bits by groups, at every level, for few rows and for many, against FP64.
#include "mantissa/device/cpu/modes/quantized.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "mantissa/base/buffer.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/modes/narrowing.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/numerics/formats.h"
#include "tests/device/levels.h"
#include "tests/device/normal_floats.h"
#include "tests/device/product_in_poison.h"

namespace mantissa::on_cpu {
namespace {

struct Grouped {
    std::vector<std::uint8_t> numbers;
    std::vector<BF16> scales;

    Grouped(const std::vector<float>& w, std::int64_t rows, std::int64_t depth, int threads = 2)
        : numbers(static_cast<std::size_t>(rows * depth / 2)),
          scales(static_cast<std::size_t>(rows * ceil_div(depth, weights_of_group))) {
        ThreadPool pool(threads);
        Buffer workspace(static_cast<std::size_t>(quantize_groups_workspace(depth, threads)));
        quantize_groups({.rows = rows,
                         .depth = depth,
                         .x = {w.data()},
                         .numbers = numbers.data(),
                         .scales = scales.data(),
                         .workspace = reinterpret_cast<float*>(workspace.as<std::byte>().data())},
                        pool);
    }
    double weight(std::int64_t row, std::int64_t k, std::int64_t depth) const {
        const std::int64_t groups = ceil_div(depth, weights_of_group);
        return s4_at(numbers.data(), row * depth + k) *
               static_cast<double>(
                   to_f32(scales[static_cast<std::size_t>(row * groups + k / weights_of_group)]));
    }
};

std::vector<float> grouped_y(const std::vector<float>& x, const Grouped& w, std::int64_t m, std::int64_t n,
                             std::int64_t k, const float* bias, int threads, Isa isa) {
    const GroupedProduct problem{.m = m,
                                 .n = n,
                                 .k = k,
                                 .x = {x.data()},
                                 .w = w.numbers.data(),
                                 .scales = w.scales.data(),
                                 .bias = bias};
    return product_in_poison<grouped_product, grouped_product_workspace>(problem, threads, isa);
}

/// x as it is quantised: groups of 32, the largest to 127.
std::vector<double> quantized(const std::vector<float>& x, std::int64_t m, std::int64_t k) {
    std::vector<double> out;
    for (std::int64_t row = 0; row < m; ++row)
        for (std::int64_t first = 0; first < k; first += weights_of_group) {
            const std::int64_t count = std::min(weights_of_group, k - first);
            float largest = 0;
            for (std::int64_t i = 0; i < count; ++i)
                largest = std::max(largest, std::abs(x[static_cast<std::size_t>(row * k + first + i)]));
            for (std::int64_t i = 0; i < count; ++i) {
                const float value = x[static_cast<std::size_t>(row * k + first + i)];
                out.push_back(std::nearbyint(static_cast<double>(value * (127 / largest))) *
                              static_cast<double>(largest / 127));
            }
        }
    return out;
}

/// The worst error over what FP32 sums may lose: as many roundings as there are groups, and four, of the sum
/// of absolute values; where rows become FP32, as many as there are terms.
double worst_ratio(const std::vector<float>& y, const std::vector<float>& x, const Grouped& w, std::int64_t m,
                   std::int64_t n, std::int64_t k, const std::vector<float>& bias) {
    const std::vector<double> exact = quantized(x, m, k);
    double worst = 0;
    for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
            double sum = static_cast<double>(bias[static_cast<std::size_t>(j)]), size = std::abs(sum);
            for (std::int64_t d = 0; d < k; ++d) {
                const double term = exact[static_cast<std::size_t>(i * k + d)] * w.weight(j, d, k);
                sum += term;
                size += std::abs(term);
            }
            const double terms =
                m <= 8 ? static_cast<double>(ceil_div(k, weights_of_group) + 4) : static_cast<double>(k + 4);
            const double error = std::abs(static_cast<double>(y[static_cast<std::size_t>(i * n + j)]) - sum);
            const double ratio = error / (0x1p-24 * terms * size);
            worst = !(ratio <= worst) ? ratio : worst;
        }
    return worst;
}

TEST(Grouped, ProductsAgreeWithFp64ForFewRowsAndForMany) {
    at_every_level([](Isa isa) {
        for (const std::int64_t k : {2, 30, 34, 64, 258, 768})
            for (const std::int64_t n : {1, 19, 530}) {
                const std::vector<float> x = normal_floats(11 * k, {.seed = 6, .operation = 2}),
                                         bias = normal_floats(n, {.seed = 6, .operation = 4});
                const Grouped w(normal_floats(n * k, {.seed = 6, .operation = 3}), n, k);
                for (const std::int64_t m : {1, 3, 5, 8, 11}) {
                    std::vector<float> y = grouped_y(x, w, m, n, k, bias.data(), 2, isa);
                    EXPECT_LE(worst_ratio(y, x, w, m, n, k, bias), 1) << m << " " << n << " " << k;
                    EXPECT_EQ(grouped_y(x, w, m, n, k, bias.data(), 1, isa), y) << "one thread";
                    // The class bites: a weight one off, at a usual number of x, is more.
                    y.back() += 0.05f;
                    EXPECT_GT(worst_ratio(y, x, w, m, n, k, bias), 1) << m << " " << n << " " << k;
                }
            }
    });
}

/// Rows of x as kernels of few rows read them, beside bytes that stay as they are.
std::vector<std::byte> fours_of(QuantizeFours quantize, const std::vector<float>& x) {
    const std::int64_t fours = std::ssize(x) / numbers_together, stride = 3;
    Buffer memory(static_cast<std::size_t>(fours * stride) * sizeof(FourOfX));
    quantize(x.data(), fours, reinterpret_cast<FourOfX*>(memory.data()), stride);
    return {memory.data(), memory.data() + memory.size()};
}

TEST(Grouped, RowsOfXAreTheSameBytesOnEveryLevel) {
    std::vector<float> x = normal_floats(12 * numbers_together, {.seed = 6, .operation = 2});
    for (std::size_t i = 0; i < 32; ++i) x[32 + i] = 0;
    for (std::size_t i = 0; i < 32; ++i)
        x[64 + i] = static_cast<float>(i) - 15.5f;  // ties, where 15.5 is 127
    x[96] = -INFINITY;
    x[130] = std::nanf("");
    x[170] = 1e-38f * 0x1p-10f;
    const std::vector<std::byte> expected = fours_of(quantize_fours_generic, x);
    if (best_isa() >= Isa::avx2) {
        EXPECT_EQ(fours_of(quantize_fours_avx2, x), expected);
    }
    if (best_isa() >= Isa::avx512) {
        EXPECT_EQ(fours_of(quantize_fours_avx512, x), expected);
    }
    x[0] *= 1.01f;
    EXPECT_NE(fours_of(quantize_fours_generic, x), expected);
}

TEST(Grouped, ARowHasTheSameBitsAmongOthers) {
    at_every_level([](Isa isa) {
        const std::int64_t n = 21, k = 350;
        const std::vector<float> x = normal_floats(8 * k, {.seed = 6, .operation = 2});
        const Grouped w(normal_floats(n * k, {.seed = 6, .operation = 3}), n, k);
        const std::vector<float> all = grouped_y(x, w, 8, n, k, nullptr, 2, isa);
        for (std::int64_t row = 0; row < 8; ++row) {
            const std::vector<float> alone =
                grouped_y({x.begin() + row * k, x.begin() + (row + 1) * k}, w, 1, n, k, nullptr, 1, isa);
            EXPECT_EQ(alone, std::vector<float>(all.begin() + row * n, all.begin() + (row + 1) * n));
        }
    });
}

TEST(Grouped, AnInfinityOrANaNIsNotLost) {
    at_every_level([](Isa isa) {
        for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")})
            for (const std::int64_t m : {1, 9}) {
                std::vector<float> x = normal_floats(m * 70, {.seed = 6, .operation = 2});
                for (std::int64_t row = 0; row < m; ++row) x[static_cast<std::size_t>(row * 70 + 7)] = bad;
                const Grouped w(normal_floats(3 * 70, {.seed = 6, .operation = 3}), 3, 70);
                for (const float y : grouped_y(x, w, m, 3, 70, nullptr, 1, isa))
                    EXPECT_FALSE(std::isfinite(y));
            }
        std::vector<float> weights = normal_floats(3 * 70, {.seed = 6, .operation = 3});
        weights[70 + 5] = INFINITY;
        const std::vector<float> y = grouped_y(normal_floats(70, {.seed = 6, .operation = 2}),
                                               Grouped(weights, 3, 70), 1, 3, 70, nullptr, 1, isa);
        EXPECT_TRUE(std::isfinite(y[0]));
        EXPECT_FALSE(std::isfinite(y[1]));
    });
}

}  // namespace
}  // namespace mantissa::on_cpu
