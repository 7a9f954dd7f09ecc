// The squared norm and sums over columns against their definitions in FP64.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "mantissa/numerics/formats.h"
#include "tests/device/rows_harness.h"
#include "tests/support/random_draws.h"

namespace mantissa::on_cpu {
namespace {

TEST(RowsSquaredNorm, IsExactToFp64AndSeesWhatIsNotFinite) {
    for (const std::int64_t count : {1, 31, 33, 32768, 100003})
        for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
            SCOPED_TRACE(::testing::Message() << count << " " << name_of(type));
            const std::vector<double> x = normal_values(count, type, 100, 1);
            double expected = 0;
            for (const double value : x) expected += value * value;
            check_everywhere([&](const Setting& setting) {
                Guarded in(setting, type, count);
                Guarded workspace(setting, DType::f64, squared_norm_workspace(count) / 8);
                in.assign(x);
                const SquaredNorm problem = {
                    .count = count, .x = in.in(), .workspace = workspace.as<double>()};
                const SquaredNormResult result = squared_norm(setting.kernels, problem, setting.pool);
                // All terms are positive: n roundings of FP64, relatively.
                const double allowed = static_cast<double>(count) * 0x1p-53 * expected;
                EXPECT_TRUE(std::fabs(result.sum - expected) <= allowed) << result.sum << " " << expected;
                EXPECT_TRUE(result.finite);
                std::vector<std::byte> bytes(sizeof result.sum);
                std::memcpy(bytes.data(), &result.sum, sizeof result.sum);
                for (const double bad :
                     {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
                    std::vector<double> spoilt = x;
                    spoilt.back() = bad;
                    in.assign(spoilt);
                    EXPECT_FALSE(squared_norm(setting.kernels, problem, setting.pool).finite) << bad;
                }
                return bytes;
            });
        }
}

TEST(RowsSquaredNorm, TheLargestNumbersDoNotOverflowIt) {
    check_everywhere([&](const Setting& setting) {
        Guarded in(setting, DType::f32, 100), workspace(setting, DType::f64, 1);
        in.assign(std::vector<double>(100, 3e38));
        const SquaredNormResult result = squared_norm(
            setting.kernels, {.count = 100, .x = in.in(), .workspace = workspace.as<double>()}, setting.pool);
        EXPECT_TRUE(result.finite);
        EXPECT_NEAR(result.sum, 9e78, 1e72);
        return std::vector<std::byte>(1);
    });
}

TEST(RowsColumnSum, AgreesWithItsDefinition) {
    struct Case {
        std::int64_t rows;
        std::int64_t channels;
        DType type;
    };
    for (const Case& k : {Case{1, 1, DType::f32}, Case{7, 17, DType::bf16}, Case{257, 64, DType::f32},
                          Case{600, 1031, DType::f32}, Case{515, 15, DType::bf16}}) {
        SCOPED_TRACE(::testing::Message() << k.rows << " x " << k.channels);
        const std::vector<double> x = normal_values(k.rows * k.channels, k.type, 1, 1);
        std::vector<double> sum(static_cast<std::size_t>(k.channels)), size(sum.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
            sum[i % sum.size()] += x[i];
            size[i % sum.size()] += std::fabs(x[i]);
        }
        check_everywhere([&](const Setting& setting) {
            Guarded in(setting, k.type, k.rows * k.channels), out(setting, DType::f32, k.channels);
            Guarded workspace(setting, DType::f32, column_sum_workspace(k.rows, k.channels) / 4);
            in.assign(x);
            column_sum(setting.kernels,
                       {.rows = k.rows,
                        .channels = k.channels,
                        .x = in.in(),
                        .sum = out.f32(),
                        .workspace = workspace.f32()},
                       setting.pool);
            // At most 64 groups of four rows one after another, then a tree.
            const double n = std::fmin(static_cast<double>(k.rows) / 4, 64) + 8;
            expect_matches(out, sum, Tolerance::bound(1, n, eps32, size));
            return joined({&out});
        });
    }
}

}  // namespace
}  // namespace mantissa::on_cpu
