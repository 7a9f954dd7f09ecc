// Orders of rows, of few and of many elements, on one thread and on several.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "mantissa/base/buffer.h"
#include "mantissa/base/random.h"
#include "mantissa/device/cpu/rows/order.h"

namespace mantissa::on_cpu {
namespace {

std::vector<float> drawn(std::int64_t count, float coarse) {
    const RandomStream random{.seed = 3, .step = 0, .operation = 1};
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = i % 97 == 5 ? NAN : std::round(random.normal(i) * coarse) / coarse;
    return values;
}

TEST(RowsOrder, IsAStableSortWithNanGreatest) {
    for (const int threads : {1, 3})
        for (const std::int64_t columns : {1, 7, 64, 65, 4099})
            for (const bool descending : {false, true}) {
                ThreadPool pool(threads);
                constexpr std::int64_t rows = 5;
                const std::vector<float> x = drawn(rows * columns, 4);  // many ties
                for (const std::int64_t count : {columns, std::min<std::int64_t>(columns, 9)}) {
                    std::vector<std::int32_t> order(static_cast<std::size_t>(rows * count));
                    OrderOfRows problem{.rows = rows,
                                        .columns = columns,
                                        .count = count,
                                        .descending = descending,
                                        .x = x.data(),
                                        .order = order.data()};
                    Buffer scratch(static_cast<std::size_t>(order_workspace(problem, threads)));
                    problem.scratch = scratch.as<std::uint64_t>().data();
                    order_rows(problem, pool);
                    for (std::int64_t row = 0; row < rows; ++row) {
                        const float* const of = x.data() + row * columns;
                        const auto less = [&](std::int32_t a, std::int32_t b) {
                            if (std::isnan(of[a]) || std::isnan(of[b])) return !std::isnan(of[a]);
                            return of[a] < of[b];
                        };
                        std::vector<std::int32_t> expected(static_cast<std::size_t>(columns));
                        std::iota(expected.begin(), expected.end(), 0);
                        std::ranges::stable_sort(expected, [&](std::int32_t a, std::int32_t b) {
                            const bool both = std::isnan(of[a]) && std::isnan(of[b]);
                            return !both && (descending ? less(b, a) && !(less(a, b)) : less(a, b));
                        });
                        for (std::int64_t i = 0; i < count; ++i)
                            ASSERT_EQ(order[static_cast<std::size_t>(row * count + i)],
                                      expected[static_cast<std::size_t>(i)])
                                << columns << " columns, place " << i;
                    }
                }
            }
}

}  // namespace
}  // namespace mantissa::on_cpu
