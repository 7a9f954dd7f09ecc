// GELU's gradient against its definition in FP64.
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

double gate(double x) { return 1 / (1 + std::exp(-2 * inner(x))); }

double slope(double x) {
    return gate(x) +
           x * gate(x) * (1 - gate(x)) * 2 * std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
}

/// The argument u of exp(-2 u) is off by 4 roundings, so the gate by 2 |u| of them, relatively.
double size_of_slope(double x) {
    return (gate(x) + std::fabs(slope(x) - gate(x))) * (1 + 4 * std::fabs(inner(x)));
}

TEST(RowsGelu, TheGradientAgreesWithItsDefinition) {
    for (const GeluCase& k : gelu_cases) {
        SCOPED_TRACE(::testing::Message() << k.count << " " << name_of(k.input));
        const std::vector<double> x = normal_values(k.count, k.input, 2, 1);
        const std::vector<double> dy = normal_values(k.count, k.output, 1, 2);
        std::vector<double> dx, dx_size;
        for (std::size_t i = 0; i < x.size(); ++i) {
            dx.push_back(dy[i] * slope(x[i]));
            dx_size.push_back(std::fabs(dy[i]) * size_of_slope(x[i]));
        }
        check_everywhere([&](const Setting& setting) {
            Guarded in(setting, k.input, k.count), gradient(setting, k.output, k.count);
            Guarded in_gradient(setting, k.input, k.count);
            in.assign(x);
            gradient.assign(dy);
            gelu_grad(setting.kernels,
                      {.count = k.count, .x = in.in(), .dy = gradient.in(), .dx = in_gradient.out()},
                      setting.pool, setting.stores);
            expect_matches(in_gradient, dx, Tolerance::bound(1, 10, eps32, dx_size));
            return joined({&in_gradient});
        });
    }
}

TEST(RowsGelu, SlopesAtExtremesAreZeroOrOne) {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    check_everywhere([&](const Setting& setting) {
        Guarded in(setting, DType::f32, 5), slopes(setting, DType::f32, 5);
        Guarded ones(setting, DType::f32, 5);
        in.assign(std::vector<double>{-100, 100, 0, nan, 1e4});
        ones.assign(std::vector<double>(5, 1.0));
        gelu_grad(setting.kernels, {.count = 5, .x = in.in(), .dy = ones.in(), .dx = slopes.out()},
                  setting.pool);
        const std::vector<double> dx = slopes.values();
        EXPECT_EQ(dx[0], 0.0);
        EXPECT_EQ(dx[1], 1.0);
        EXPECT_EQ(dx[2], 0.5);
        EXPECT_TRUE(std::isnan(dx[3]));
        EXPECT_EQ(dx[4], 1.0);
        return std::vector<std::byte>(1);
    });
}

}  // namespace
}  // namespace mantissa::on_cpu
