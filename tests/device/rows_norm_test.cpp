// The gradient of layer norm, and softmax, against their definitions in FP64.
#include <gtest/gtest.h>

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

const NormCase softmax_cases[] = {
    {1, 1, DType::f32, DType::f32},     {5, 15, DType::f32, DType::bf16}, {3, 16, DType::bf16, DType::bf16},
    {7, 17, DType::bf16, DType::f32},   {3, 129, DType::f16, DType::f32}, {300, 257, DType::f32, DType::f32},
    {2, 4099, DType::f32, DType::bf16},
};

TEST(RowsSoftmax, AgreesWithItsDefinition) {
    for (const auto& [rows, columns, input, output] : softmax_cases) {
        SCOPED_TRACE(::testing::Message() << rows << " x " << columns << " " << name_of(input));
        const std::vector<double> x = normal_values(rows * columns, input, 3, 1);
        std::vector<double> y, size;
        for (std::int64_t r = 0; r < rows; ++r) {
            const double* row = &x[static_cast<std::size_t>(r * columns)];
            double greatest = row[0], sum = 0;
            for (std::int64_t c = 0; c < columns; ++c) greatest = std::fmax(greatest, row[c]);
            for (std::int64_t c = 0; c < columns; ++c) sum += std::exp(row[c] - greatest);
            for (std::int64_t c = 0; c < columns; ++c) {
                y.push_back(std::exp(row[c] - greatest) / sum);
                size.push_back(y.back() * (1 + std::fabs(row[c] - greatest)));
            }
        }
        check_everywhere([&](const Setting& setting) {
            Guarded in(setting, input, rows * columns), out(setting, output, rows * columns);
            in.assign(x);
            softmax(setting.kernels, {.rows = rows, .columns = columns, .x = in.in(), .y = out.out()},
                    setting.pool, setting.stores);
            // exp twice within 1 ULP (2 eps), the argument's rounding, the sum and two roundings more.
            expect_matches(out, y, Tolerance::bound(1, static_cast<double>(columns) / 64 + 12, eps32, size));
            return joined({&out});
        });
    }
}

TEST(RowsSoftmax, ExtremesAndNan) {
    constexpr double inf = std::numeric_limits<double>::infinity();
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    check_everywhere([&](const Setting& setting) {
        Guarded in(setting, DType::f32, 4 * 3), out(setting, DType::f32, 4 * 3);
        in.assign(std::vector<double>{3e38, -3e38, 3e38, -inf, 0, -inf, 1, nan, 2, -inf, -inf, -inf});
        softmax(setting.kernels, {.rows = 4, .columns = 3, .x = in.in(), .y = out.out()}, setting.pool,
                setting.stores);
        const std::vector<double> y = out.values();
        const std::vector<double> finite(y.begin(), y.begin() + 6);
        EXPECT_EQ(finite, (std::vector<double>{0.5, 0, 0.5, 0, 1, 0}));
        for (std::size_t i = 6; i < 12; ++i) EXPECT_TRUE(std::isnan(y[i])) << i;
        return std::vector<std::byte>(1);
    });
}

TEST(RowsChecks, NameTheKernelAndTheArgument) {
    ThreadPool pool(1);
    std::vector<float> a(64), b(64);
    const auto message = [&](const Softmax& problem) {
        return testing::error_of<InternalError>([&] { softmax(row_kernels(Isa::generic), problem, pool); });
    };
    Softmax good = {.rows = 4, .columns = 8, .x = {a.data()}, .y = {b.data()}};
    EXPECT_EQ(message(good), "no error");
    Softmax bad = good;
    bad.rows = 0;
    EXPECT_NE(message(bad).find("softmax: rows is 0, expected 1 or more"), std::string::npos) << message(bad);
    bad = good;
    bad.y = {a.data() + 1};
    EXPECT_NE(message(bad).find("output y overlaps input x without being the same memory"),
              std::string::npos);
    bad.y = {a.data()};
    EXPECT_EQ(message(bad), "no error") << "in place";
    bad.y = {nullptr};
    EXPECT_NE(message(bad).find("softmax: y is a null pointer"), std::string::npos);
    bad.y = {b.data(), DType::i32};
    EXPECT_NE(message(bad).find("y is i32, expected f32, bf16 or f16"), std::string::npos);
}

}  // namespace
}  // namespace mantissa::on_cpu
