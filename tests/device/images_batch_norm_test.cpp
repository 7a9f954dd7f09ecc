// Batch normalisation against FP64: means far larger than deviations, no deviation at all, one element a
// channel.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "mantissa/numerics/formats.h"
#include "tests/device/rows_harness.h"

namespace mantissa::on_cpu {
namespace {

struct BatchNormCase {
    std::int64_t rows, channels;
    double mean = 0;  ///< in deviations
    DType type = DType::f32;
};

/// Parts have up to 1,024 rows and 256 channels: some cases have several of each, and rests.
const BatchNormCase batch_norm_cases[] = {{1, 1},           {1, 37},
                                          {3, 3},           {5, 16, 0, DType::bf16},
                                          {97, 17},         {1031, 31, 0, DType::f16},
                                          {3001, 5},        {257, 300, 0, DType::bf16},
                                          {515, 257},       {4099, 33, 1000},
                                          {515, 257, 1000}, {1031, 16, -1000}};

/// The reference that the tests compare with, and the sizes that errors are relative to.
struct ExpectedNorm {
    std::vector<double> mean, variance, rstd, y, y_size;
};

constexpr double epsilon = 1e-5;

std::vector<double> values_of(const BatchNormCase& k) {
    std::vector<double> x = normal_values(k.rows * k.channels, DType::f32, 2, 1);
    for (double& each : x) each = rounded_to(each + 2 * k.mean, k.type);
    return x;
}

ExpectedNorm expected_of(const BatchNormCase& k, const std::vector<double>& x) {
    const auto C = static_cast<std::size_t>(k.channels), rows = static_cast<std::size_t>(k.rows);
    ExpectedNorm e{std::vector<double>(C), std::vector<double>(C), {}, {}, {}};
    for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t c = 0; c < C; ++c) e.mean[c] += x[r * C + c] / static_cast<double>(k.rows);
    for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t c = 0; c < C; ++c) {
            const double centered = x[r * C + c] - e.mean[c];
            e.variance[c] += centered * centered / static_cast<double>(k.rows);
        }
    for (const double variance : e.variance) e.rstd.push_back(1 / std::sqrt(variance + epsilon));
    return e;
}

/// The same rounded to FP32, as the kernels that normalise are given them.
ExpectedNorm given_to_kernels(ExpectedNorm e) {
    for (std::vector<double>* statistics : {&e.mean, &e.rstd})
        for (double& each : *statistics) each = rounded_to(each, DType::f32);
    return e;
}

void normalise(ExpectedNorm& e, const std::vector<double>& x, const std::vector<double>& gamma,
               const std::vector<double>& beta) {
    const std::size_t C = gamma.size(), rows = x.size() / C;
    for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t c = 0; c < C; ++c) {
            const double scaled = (x[r * C + c] - e.mean[c]) * e.rstd[c] * gamma[c];
            e.y.push_back(scaled + beta[c]);
            e.y_size.push_back(std::fabs(scaled) + std::fabs(beta[c]));
        }
}

TEST(ImagesMoments, AreThoseOfFp64HoweverFarTheMean) {
    for (const BatchNormCase& k : batch_norm_cases) {
        SCOPED_TRACE(::testing::Message()
                     << k.rows << " x " << k.channels << " mean " << k.mean << " " << name_of(k.type));
        const std::vector<double> x = values_of(k);
        const ExpectedNorm e = expected_of(k, x);
        // Sums in FP32 are of values less the first of their part, some four deviations at most, over up to
        // 1,024 rows in groups of four; parts are joined in FP64.
        std::vector<double> mean_size, deviation;
        for (std::size_t c = 0; c < e.mean.size(); ++c) {
            deviation.push_back(std::sqrt(e.variance[c]));
            mean_size.push_back(std::fabs(e.mean[c]) + 8 * deviation[c]);
        }
        check_everywhere([&](const Setting& setting) {
            Guarded in(setting, k.type, k.rows * k.channels);
            Guarded mean(setting, DType::f32, k.channels), variance(setting, DType::f32, k.channels),
                rstd(setting, DType::f32, k.channels),
                workspace(setting, DType::f32, moments_workspace(k.rows, k.channels) / 4);
            in.assign(x);
            moments(setting.kernels,
                    {.rows = k.rows,
                     .channels = k.channels,
                     .eps = static_cast<float>(epsilon),
                     .x = in.in(),
                     .mean = mean.f32(),
                     .variance = variance.f32(),
                     .rstd = rstd.f32(),
                     .workspace = workspace.f32()},
                    setting.pool);
            expect_matches(mean, e.mean, Tolerance::bound(1, 4, eps32, mean_size));
            expect_matches(variance, e.variance, Tolerance::bound(1, 32, eps32, e.variance));
            expect_matches(rstd, e.rstd, Tolerance::bound(1, 32, eps32, e.rstd));
            return joined({&mean, &variance, &rstd});
        });
    }
}

TEST(ImagesMoments, OfEqualValuesHaveNoVarianceAtAll) {
    const std::int64_t rows = 2051, C = 19;
    std::vector<double> x;
    for (std::int64_t i = 0; i < rows * C; ++i)
        x.push_back(rounded_to(0.1 * static_cast<double>(i % C), DType::f32));
    check_everywhere([&](const Setting& setting) {
        Guarded in(setting, DType::f32, rows * C), mean(setting, DType::f32, C),
            variance(setting, DType::f32, C), rstd(setting, DType::f32, C),
            workspace(setting, DType::f32, moments_workspace(rows, C) / 4);
        in.assign(x);
        moments(setting.kernels,
                {.rows = rows,
                 .channels = C,
                 .eps = 0.25f,
                 .x = in.in(),
                 .mean = mean.f32(),
                 .variance = variance.f32(),
                 .rstd = rstd.f32(),
                 .workspace = workspace.f32()},
                setting.pool);
        for (std::int64_t c = 0; c < C; ++c) {
            EXPECT_EQ(static_cast<double>(mean.f32()[c]), x[static_cast<std::size_t>(c)]);
            EXPECT_EQ(variance.f32()[c], 0.0f);
            EXPECT_EQ(rstd.f32()[c], 2.0f);
        }
        return joined({&mean, &variance, &rstd});
    });
}

TEST(ImagesNormalize, AgreesWithItsDefinition) {
    for (const BatchNormCase& k : batch_norm_cases) {
        SCOPED_TRACE(::testing::Message()
                     << k.rows << " x " << k.channels << " mean " << k.mean << " " << name_of(k.type));
        const std::vector<double> x = values_of(k), gamma = normal_values(k.channels, DType::f32, 1, 2),
                                  beta = normal_values(k.channels, DType::f32, 1, 3);
        ExpectedNorm e = given_to_kernels(expected_of(k, x));
        normalise(e, x, gamma, beta);
        check_everywhere([&](const Setting& setting) {
            Guarded in(setting, k.type, k.rows * k.channels), out(setting, k.type, k.rows * k.channels);
            Guarded mean(setting, DType::f32, k.channels), scale(setting, DType::f32, k.channels),
                shift(setting, DType::f32, k.channels);
            in.assign(x);
            mean.assign(e.mean);
            shift.assign(beta);
            for (std::size_t c = 0; c < gamma.size(); ++c)
                scale.f32()[c] = static_cast<float>(e.rstd[c]) * static_cast<float>(gamma[c]);
            normalize(setting.kernels,
                      {.rows = k.rows,
                       .channels = k.channels,
                       .x = in.in(),
                       .mean = mean.f32(),
                       .scale = scale.f32(),
                       .beta = shift.f32(),
                       .y = out.out()},
                      setting.pool, setting.stores);
            // Rounded are the product of the scale and three results.
            expect_matches(out, e.y, Tolerance::bound(1, 4, eps32, e.y_size));
            return out.bytes();
        });
    }
}

/// dx, dgamma and dbeta in FP64, and the sizes of what their terms add up to.
struct Gradients {
    std::vector<double> dx, dgamma, dbeta, dx_size, dgamma_size, dbeta_size;
};

Gradients gradients_of(const BatchNormCase& k, const std::vector<double>& dy, const std::vector<double>& x,
                       const std::vector<double>& gamma, const ExpectedNorm& e) {
    const auto C = static_cast<std::size_t>(k.channels), rows = static_cast<std::size_t>(k.rows);
    const double n = static_cast<double>(k.rows);
    Gradients g;
    g.dgamma = g.dbeta = g.dgamma_size = g.dbeta_size = std::vector<double>(C);
    const auto size = [&](std::size_t i) { return std::fabs(x[i] - e.mean[i % C]); };
    for (std::size_t i = 0; i < rows * C; ++i) {
        const std::size_t c = i % C;
        g.dbeta[c] += dy[i];
        g.dbeta_size[c] += std::fabs(dy[i]);
        g.dgamma[c] += dy[i] * (x[i] - e.mean[c]) * e.rstd[c];
        g.dgamma_size[c] += std::fabs(dy[i]) * size(i) * e.rstd[c];
    }
    for (std::size_t i = 0; i < rows * C; ++i) {
        const std::size_t c = i % C;
        const double normal = (x[i] - e.mean[c]) * e.rstd[c];
        const double scale = e.rstd[c] * gamma[c];
        g.dx.push_back(scale * (dy[i] - g.dbeta[c] / n - normal * g.dgamma[c] / n));
        g.dx_size.push_back(std::fabs(scale) * (std::fabs(dy[i]) + g.dbeta_size[c] / n +
                                                size(i) * e.rstd[c] * g.dgamma_size[c] / n));
    }
    return g;
}

TEST(ImagesBatchNormGrad, AgreesWithItsDefinition) {
    for (const BatchNormCase& k : batch_norm_cases) {
        SCOPED_TRACE(::testing::Message()
                     << k.rows << " x " << k.channels << " mean " << k.mean << " " << name_of(k.type));
        const std::int64_t count = k.rows * k.channels;
        const std::vector<double> x = values_of(k), dy = normal_values(count, k.type, 1, 4),
                                  gamma = normal_values(k.channels, DType::f32, 1, 2);
        const ExpectedNorm e = given_to_kernels(expected_of(k, x));
        const Gradients g = gradients_of(k, dy, x, gamma, e);
        check_everywhere([&](const Setting& setting) {
            Guarded in(setting, k.type, count), gradient(setting, k.type, count), dx(setting, k.type, count);
            Guarded scale(setting, DType::f32, k.channels), mean(setting, DType::f32, k.channels),
                rstd(setting, DType::f32, k.channels), dgamma(setting, DType::f32, k.channels),
                dbeta(setting, DType::f32, k.channels),
                workspace(setting, DType::f32, batch_norm_grad_workspace(k.rows, k.channels) / 4);
            in.assign(x);
            gradient.assign(dy);
            scale.assign(gamma);
            mean.assign(e.mean);
            rstd.assign(e.rstd);
            batch_norm_grad(setting.kernels,
                            {.rows = k.rows,
                             .channels = k.channels,
                             .dy = gradient.in(),
                             .x = in.in(),
                             .gamma = scale.f32(),
                             .mean = mean.f32(),
                             .rstd = rstd.f32(),
                             .dx = dx.out(),
                             .dgamma = dgamma.f32(),
                             .dbeta = dbeta.f32(),
                             .workspace = workspace.f32()},
                            setting.pool, setting.stores);
            // Eight rows at a time, four together, up to 128 additions one after another, and a tree; errors
            // of these are random, and a few roundings are of the terms themselves.
            expect_matches(dbeta, g.dbeta, Tolerance::bound(1, 8, eps32, g.dbeta_size));
            expect_matches(dgamma, g.dgamma, Tolerance::bound(1, 8, eps32, g.dgamma_size));
            expect_matches(dx, g.dx, Tolerance::bound(1, 16, eps32, g.dx_size));
            return joined({&dx, &dgamma, &dbeta});
        });
    }
}

}  // namespace
}  // namespace mantissa::on_cpu
