// Sums up to each element of a row. See body_loops.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_loops.h"

namespace mantissa::inline v0::on_cpu {
namespace {

/// Rows that are walked together: a row's additions wait four cycles for one another, and those of the next
/// block of sixteen begin before. Of four, not all sums were kept in registers (0.75 of the speed).
constexpr int rows_together = 2;

/// `count` columns of a row, in FP64: a rounding of a sum is seen by no later one.
template <bool from_end>
MANTISSA_LANES double add_columns(const float* x, double sum, float* given, int count) {
    for (int i = 0; i < count; ++i) {
        const int c = from_end ? count - 1 - i : i;
        sum += static_cast<double>(x[c]);
        given[c] = static_cast<float>(sum);
    }
    return sum;
}

template <int rows, bool from_end>
void running_sums_of(const RunningSums& p, std::int64_t row, Stores stores) {
    const float* x = p.x + row * p.columns;
    float* y = p.y + row * p.columns;
    const bool stream = may_stream(stores, y) && p.columns % 16 == 0;
    const std::int64_t whole = p.columns / 16 * 16;
    const Part rest{static_cast<int>(p.columns - whole)};
    double sums[rows] = {};
    float given[rows][16];
    const auto add_rest = [&]() MANTISSA_BODY {
        for (int r = 0; r < rows; ++r) {
            sums[r] = add_columns<from_end>(x + r * p.columns + whole, sums[r], given[r], rest.count);
            store(y + r * p.columns + whole, Lanes::load_part(given[r], rest.count), rest, false);
        }
    };
    if (from_end && rest.count > 0) add_rest();
    for (std::int64_t done = 0; done < whole; done += 16) {
        const std::int64_t c = from_end ? whole - 16 - done : done;
        for (int r = 0; r < rows; ++r)
            sums[r] = add_columns<from_end>(x + r * p.columns + c, sums[r], given[r], 16);
        for (int r = 0; r < rows; ++r) store(y + r * p.columns + c, Lanes::load(given[r]), Whole{}, stream);
    }
    if (!from_end && rest.count > 0) add_rest();
}

template <bool from_end>
void running_sums_of_rows(const RunningSums& p, Range rows, Stores stores) {
    std::int64_t row = rows.first;
    for (; row + rows_together <= rows.last; row += rows_together)
        running_sums_of<rows_together, from_end>(p, row, stores);
    for (; row < rows.last; ++row) running_sums_of<1, from_end>(p, row, stores);
    Lanes::fence();
}

void running_sums_rows(const RunningSums& p, Range rows, Stores stores) {
    if (p.from_end)
        running_sums_of_rows<true>(p, rows, stores);
    else
        running_sums_of_rows<false>(p, rows, stores);
}

}  // namespace
}  // namespace mantissa::on_cpu
