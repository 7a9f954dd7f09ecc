// GELU in both forms and its gradients against their definitions in FP64.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "tests/device/rows_harness.h"

namespace mantissa::on_cpu {
namespace {

struct GeluCase {
    std::int64_t count;
    DType input;
    DType output;
};

/// The last is longer than one block of 32,768 elements.
const GeluCase gelu_cases[] = {
    {1, DType::f32, DType::f32},     {15, DType::bf16, DType::f32}, {16, DType::f32, DType::bf16},
    {17, DType::bf16, DType::bf16},  {97, DType::f16, DType::f16},  {4099, DType::f32, DType::f32},
    {70001, DType::f32, DType::f32},
};

double inner(double x) { return std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x); }

double value(GeluForm form, double x) {
    if (form == GeluForm::tanh) return x / (1 + std::exp(-2 * inner(x)));
    return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
}

double slope(GeluForm form, double x) {
    if (form == GeluForm::tanh) {
        const double gate = 1 / (1 + std::exp(-2 * inner(x)));
        return gate +
               x * gate * (1 - gate) * 2 * std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
    }
    return 0.5 * std::erfc(-x / std::numbers::sqrt2) +
           x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
}

/// tanh form: the argument u of exp(-2 u) is off by 4 roundings, so the gate by 2 |u| of them, relatively.
/// Exact form: 1 + erf cancels for negative x, so the error is one of |x|, not of the result.
double size_of_value(GeluForm form, double x) {
    if (form == GeluForm::tanh) return std::fabs(value(form, x)) * (1 + 2 * std::fabs(inner(x)));
    return std::fabs(x);
}

double size_of_slope(GeluForm form, double x) {
    if (form == GeluForm::exact) return 1 + std::fabs(x) * (1 + x * x / 2) * std::exp(-x * x / 2);
    const double gate = 1 / (1 + std::exp(-2 * inner(x)));
    return (gate + std::fabs(slope(form, x) - gate)) * (1 + 4 * std::fabs(inner(x)));
}

TEST(RowsGelu, ValueAndGradientAgreeWithTheirDefinitions) {
    for (const GeluCase& k : gelu_cases)
        for (const GeluForm form : {GeluForm::tanh, GeluForm::exact}) {
            SCOPED_TRACE(::testing::Message() << k.count << " " << name_of(k.input)
                                              << (form == GeluForm::tanh ? " tanh" : " exact"));
            const std::vector<double> x = normal_values(k.count, k.input, 2, 1);
            const std::vector<double> dy = normal_values(k.count, k.output, 1, 2);
            std::vector<double> y, y_size, dx, dx_size;
            for (std::size_t i = 0; i < x.size(); ++i) {
                y.push_back(value(form, x[i]));
                y_size.push_back(size_of_value(form, x[i]));
                dx.push_back(dy[i] * slope(form, x[i]));
                dx_size.push_back(std::fabs(dy[i]) * size_of_slope(form, x[i]));
            }
            check_everywhere([&](const Setting& setting) {
                Guarded in(setting, k.input, k.count), gradient(setting, k.output, k.count);
                Guarded out(setting, k.output, k.count), in_gradient(setting, k.input, k.count);
                in.assign(x);
                gradient.assign(dy);
                gelu(setting.kernels, {.count = k.count, .form = form, .x = in.in(), .y = out.out()},
                     setting.pool, setting.stores);
                gelu_grad(setting.kernels,
                          {.count = k.count,
                           .form = form,
                           .x = in.in(),
                           .dy = gradient.in(),
                           .dx = in_gradient.out()},
                          setting.pool, setting.stores);
                expect_matches(out, y, Tolerance::bound(1, 8, eps32, y_size));
                expect_matches(in_gradient, dx, Tolerance::bound(1, 10, eps32, dx_size));
                return joined({&out, &in_gradient});
            });
        }
}

/// The bounds are those of numerics/normal_body.h, 4.3e-8 and 4.8e-8, and half an ULP of what 1/2 is added to
/// (at most 2^-24 below 1, 2^-23 / 2 above) and of the product with x.
TEST(RowsGelu, TheExactFormErrsByLittleOfOne) {
    constexpr std::int64_t count = 40001;
    std::vector<double> x;
    for (std::int64_t i = 0; i < count; ++i)
        x.push_back(static_cast<float>(-8 + 16.0 * static_cast<double>(i) / (count - 1)));
    const std::vector<double> ones(x.size(), 1.0);
    ThreadPool pool(1);
    const Setting setting = {row_kernels(Isa::generic), pool, Placement::ends_at_guard, Stores::plain};
    Guarded in(setting, DType::f32, count), out(setting, DType::f32, count),
        slopes(setting, DType::f32, count);
    Guarded dy(setting, DType::f32, count);
    in.assign(x);
    dy.assign(ones);
    gelu(setting.kernels, {.count = count, .form = GeluForm::exact, .x = in.in(), .y = out.out()}, pool);
    gelu_grad(setting.kernels,
              {.count = count, .form = GeluForm::exact, .x = in.in(), .dy = dy.in(), .dx = slopes.out()},
              pool);
    const std::vector<double> y = out.values(), dx = slopes.values();
    double of_value = 0, of_slope = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double error = std::fabs(y[i] - value(GeluForm::exact, x[i]));
        of_value = std::fmax(of_value, error / std::fmax(std::fabs(x[i]), 1e-30));
        of_slope = std::fmax(of_slope, std::fabs(dx[i] - slope(GeluForm::exact, x[i])));
    }
    EXPECT_LT(of_value, 4.3e-8 + 2 * 0x1p-24);
    EXPECT_LT(of_slope, 4.8e-8 + 0x1p-24);
    EXPECT_GT(of_slope, 1e-8) << "nothing was computed in FP32";
}

TEST(RowsGelu, ExtremesAreZeroOrTheIdentity) {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    check_everywhere([&](const Setting& setting) {
        for (const GeluForm form : {GeluForm::tanh, GeluForm::exact}) {
            Guarded in(setting, DType::f32, 5), out(setting, DType::f32, 5), slopes(setting, DType::f32, 5);
            Guarded ones(setting, DType::f32, 5);
            in.assign(std::vector<double>{-100, 100, 0, nan, 1e4});
            ones.assign(std::vector<double>(5, 1.0));
            gelu(setting.kernels, {.count = 5, .form = form, .x = in.in(), .y = out.out()}, setting.pool);
            gelu_grad(setting.kernels,
                      {.count = 5, .form = form, .x = in.in(), .dy = ones.in(), .dx = slopes.out()},
                      setting.pool);
            const std::vector<double> y = out.values();
            const std::vector<double> dx = slopes.values();
            EXPECT_EQ(y[0], 0.0);
            EXPECT_EQ(y[1], 100.0);
            EXPECT_EQ(y[2], 0.0);
            EXPECT_TRUE(std::isnan(y[3]));
            EXPECT_EQ(y[4], 1e4);
            EXPECT_EQ(dx[0], 0.0);
            EXPECT_EQ(dx[1], 1.0);
            EXPECT_EQ(dx[2], 0.5);
            EXPECT_TRUE(std::isnan(dx[3]));
            EXPECT_EQ(dx[4], 1.0);
        }
        return std::vector<std::byte>(1);
    });
}

}  // namespace
}  // namespace mantissa::on_cpu
