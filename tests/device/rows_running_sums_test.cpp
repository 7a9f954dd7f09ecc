// Sums up to each element of a row against their definition in FP64.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/device/rows_harness.h"

namespace mantissa::on_cpu {
namespace {

/// Rows that are walked two together and one by one, columns around a block of sixteen.
constexpr std::pair<std::int64_t, std::int64_t> sizes[] = {{1, 1},  {3, 15}, {4, 16},   {5, 17},
                                                           {9, 31}, {2, 64}, {7, 1009}, {6, 4096}};

TEST(RowsRunningSums, AreRoundedOnce) {
    for (const auto& [R, T] : sizes)
        for (const bool from_end : {false, true}) {
            SCOPED_TRACE(::testing::Message() << R << " x " << T << (from_end ? " from the end" : ""));
            const std::vector<double> x = normal_values(R * T, DType::f32, 1, 1);
            std::vector<double> y(x.size());
            for (std::int64_t row = 0; row < R; ++row) {
                double sum = 0;
                for (std::int64_t i = 0; i < T; ++i) {
                    const auto at = static_cast<std::size_t>(row * T + (from_end ? T - 1 - i : i));
                    sum += x[at];
                    y[at] = sum;
                }
            }
            check_everywhere([&](const Setting& setting) {
                Guarded in(setting, DType::f32, R * T), out(setting, DType::f32, R * T);
                in.assign(x);
                running_sums(setting.kernels,
                             {.rows = R, .columns = T, .from_end = from_end, .x = in.f32(), .y = out.f32()},
                             setting.pool, setting.stores);
                expect_matches(out, y, Tolerance::ulp(0.5));
                return joined({&out});
            });
        }
}

}  // namespace
}  // namespace mantissa::on_cpu
