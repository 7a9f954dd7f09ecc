// The gradient of layer norm, and softmax, against their definitions in FP64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/base/error.h"
#include "tests/device/rows_harness.h"
#include "tests/support/error_of.h"

namespace mantissa::on_cpu {
namespace {

struct NormCase {
    std::int64_t rows;
    std::int64_t columns;
    DType input;
    DType output;
};

/// Awkward sizes: one, primes, neighbours of 16 and 64, more rows than one block of the gradient's sums.
const NormCase norm_cases[] = {
    {1, 1, DType::f32, DType::f32},     {3, 3, DType::f32, DType::bf16},
    {5, 15, DType::f32, DType::f32},    {2, 16, DType::bf16, DType::bf16},
    {7, 17, DType::bf16, DType::f32},   {3, 63, DType::f32, DType::f32},
    {3, 64, DType::f16, DType::f32},    {2, 65, DType::f32, DType::f16},
    {131, 127, DType::f32, DType::f32}, {259, 48, DType::bf16, DType::f32},
    {4, 768, DType::f32, DType::bf16},  {3, 1031, DType::bf16, DType::bf16},
};

struct Statistics {
    double mean = 0;
    double rstd = 0;
};

Statistics statistics_of(const double* x, std::int64_t C, double eps) {
    Statistics s;
    const auto count = static_cast<double>(C);
    for (std::int64_t c = 0; c < C; ++c) s.mean += x[c] / count;
    double variance = 0;
    for (std::int64_t c = 0; c < C; ++c) variance += (x[c] - s.mean) * (x[c] - s.mean) / count;
    s.rstd = 1 / std::sqrt(variance + eps);
    return s;
}

TEST(RowsLayerNorm, GradientAgreesWithItsDefinition) {
    for (const NormCase& k : norm_cases) {
        SCOPED_TRACE(::testing::Message() << k.rows << " x " << k.columns << " " << name_of(k.input));
        const std::int64_t C = k.columns;
        const auto width = static_cast<std::size_t>(C);
        const std::vector<double> x = normal_values(k.rows * C, k.input, 2, 1);
        const std::vector<double> dy = normal_values(k.rows * C, k.output, 1, 4);
        const std::vector<double> gamma = normal_values(C, DType::f32, 1, 2);
        std::vector<double> mean, rstd, dx, dx_size;
        std::vector<double> dgamma(width), dgamma_size(width), dbeta(width), dbeta_size(width);
        for (std::int64_t r = 0; r < k.rows; ++r) {
            const auto start = static_cast<std::size_t>(r * C);
            const Statistics s = statistics_of(&x[start], C, 1e-5f);
            // The kernel is given the statistics rounded to FP32: so is the definition.
            mean.push_back(static_cast<double>(static_cast<float>(s.mean)));
            rstd.push_back(static_cast<double>(static_cast<float>(s.rstd)));
            double mean_g = 0, mean_gn = 0, size_g = 0, size_gn = 0;
            for (std::size_t c = 0; c < width; ++c) {
                const double normal = (x[start + c] - mean.back()) * rstd.back();
                const double g = dy[start + c] * gamma[c];
                mean_g += g / static_cast<double>(C);
                mean_gn += g * normal / static_cast<double>(C);
                size_g += std::fabs(g) / static_cast<double>(C);
                size_gn += std::fabs(g * normal) / static_cast<double>(C);
                dgamma[c] += dy[start + c] * normal;
                dgamma_size[c] += std::fabs(dy[start + c] * normal);
                dbeta[c] += dy[start + c];
                dbeta_size[c] += std::fabs(dy[start + c]);
            }
            for (std::size_t c = 0; c < width; ++c) {
                const double normal = (x[start + c] - mean.back()) * rstd.back();
                const double g = dy[start + c] * gamma[c];
                dx.push_back((g - mean_g - normal * mean_gn) * rstd.back());
                dx_size.push_back((std::fabs(g) + size_g + std::fabs(normal) * size_gn) * rstd.back());
            }
        }
        check_everywhere([&](const Setting& setting) {
            Guarded in(setting, k.input, k.rows * C), d(setting, k.output, k.rows * C),
                g(setting, DType::f32, C);
            Guarded means(setting, DType::f32, k.rows), rstds(setting, DType::f32, k.rows);
            Guarded out(setting, k.input, k.rows * C);
            Guarded dg(setting, DType::f32, C), db(setting, DType::f32, C);
            Guarded workspace(setting, DType::f32, layer_norm_grad_workspace(k.rows, C) / 4);
            in.assign(x);
            d.assign(dy);
            g.assign(gamma);
            means.assign(mean);
            rstds.assign(rstd);
            LayerNormGrad problem = {.rows = k.rows,
                                     .channels = C,
                                     .dy = d.in(),
                                     .x = in.in(),
                                     .gamma = g.f32(),
                                     .mean = means.f32(),
                                     .rstd = rstds.f32(),
                                     .dx = out.out(),
                                     .dgamma = dg.f32(),
                                     .dbeta = db.f32(),
                                     .workspace = workspace.f32()};
            layer_norm_grad(setting.kernels, problem, setting.pool, setting.stores);
            const double n = static_cast<double>(C) / 64 + 12;
            // Sums over rows: at most 128 terms one after another, then a tree.
            const double sum_n = std::fmin(static_cast<double>(k.rows), 128) + 8;
            expect_matches(out, dx, Tolerance::bound(1, n, eps32, dx_size));
            expect_matches(dg, dgamma, Tolerance::bound(1, sum_n, eps32, dgamma_size));
            expect_matches(db, dbeta, Tolerance::bound(1, sum_n, eps32, dbeta_size));
            return joined({&out, &dg, &db});
        });
    }
}

TEST(RowsSoftmax, AgreesWithItsDefinition) {
    for (const std::int64_t count : {1, 15, 16, 17, 129, 257, 4099}) {
        SCOPED_TRACE(::testing::Message() << count);
        const std::vector<double> x = normal_values(count, DType::f32, 3, 1);
        const double greatest = std::ranges::max(x);
        double sum = 0;
        for (const double number : x) sum += std::exp(number - greatest);
        std::vector<double> y, size;
        for (const double number : x) {
            y.push_back(std::exp(number - greatest) / sum);
            size.push_back(y.back() * (1 + std::fabs(number - greatest)));
        }
        check_everywhere([&](const Setting& setting) {
            Guarded row(setting, DType::f32, count);
            row.assign(x);
            setting.kernels.softmax(row.f32(), count);
            // exp twice within 1 ULP (2 eps), the argument's rounding, the sum and two roundings more.
            expect_matches(row, y, Tolerance::bound(1, static_cast<double>(count) / 64 + 12, eps32, size));
            return joined({&row});
        });
    }
}

TEST(RowsSoftmax, ExtremesAndNan) {
    constexpr double inf = std::numeric_limits<double>::infinity();
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    using Row = std::vector<double>;
    check_everywhere([&](const Setting& setting) {
        const auto softmax = [&](const Row& x) {
            Guarded row(setting, DType::f32, 3);
            row.assign(x);
            setting.kernels.softmax(row.f32(), 3);
            return row.values();
        };
        EXPECT_EQ(softmax({3e38, -3e38, 3e38}), (Row{0.5, 0, 0.5}));
        EXPECT_EQ(softmax({-inf, 0, -inf}), (Row{0, 1, 0}));
        for (const Row& x : {Row{1, nan, 2}, Row{-inf, -inf, -inf}})
            for (const double y : softmax(x)) EXPECT_TRUE(std::isnan(y));
        return std::vector<std::byte>(1);
    });
}

TEST(RowsChecks, NameTheKernelAndTheArgument) {
    ThreadPool pool(1);
    std::vector<float> a(64), b(64);
    const auto message = [&](const Normalize& problem) {
        return testing::error_of<InternalError>([&] { normalize(row_kernels(Isa::generic), problem, pool); });
    };
    const std::vector<float> of_channels(8);
    Normalize good = {.rows = 4,
                      .channels = 8,
                      .x = {a.data()},
                      .mean = of_channels.data(),
                      .scale = of_channels.data(),
                      .beta = of_channels.data(),
                      .y = {b.data()}};
    EXPECT_EQ(message(good), "no error");
    Normalize bad = good;
    bad.rows = 0;
    EXPECT_NE(message(bad).find("normalize: rows is 0, expected 1 or more"), std::string::npos)
        << message(bad);
    bad = good;
    bad.y = {a.data() + 1};
    EXPECT_NE(message(bad).find("output y overlaps input x without being the same memory"),
              std::string::npos);
    bad.y = {a.data()};
    EXPECT_EQ(message(bad), "no error") << "in place";
    bad.y = {nullptr};
    EXPECT_NE(message(bad).find("normalize: y is a null pointer"), std::string::npos);
    bad.y = {b.data(), DType::i32};
    EXPECT_NE(message(bad).find("y is i32, expected f32, bf16 or f16"), std::string::npos);
}

}  // namespace
}  // namespace mantissa::on_cpu
