// Sums of squares and sums over columns. See body_loops.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_loops.h"

namespace mantissa::inline v0::on_cpu {
namespace {

double squared_norm_elements(const SquaredNorm& p, Range range) {
    double total = 0;
    with_type(p.x.type, [&](auto* type) {
        const auto* x = as(p.x, type) + range.first;
        Lanes::Doubles even = Lanes::zero_doubles();
        Lanes::Doubles odd = Lanes::zero_doubles();
        std::int64_t c = 0;
        const std::int64_t count = range.last - range.first;
        for (; c + 32 <= count; c += 32) {
            even = Lanes::add_squares(even, load_ahead(x + c, Whole{}));
            odd = Lanes::add_squares(odd, load_ahead(x + c + 16, Whole{}));
        }
        for_lanes(count - c, [&](std::int64_t offset, auto extent) MANTISSA_BODY {
            even = Lanes::add_squares(even, load(x + c + offset, extent));
        });
        total = Lanes::sum(even) + Lanes::sum(odd);
    });
    return total;
}

/// Four rows a pass: the sums, in L1, are loaded and stored once for four loads of x. The next four rows are
/// fetched.
void column_sum_part(const ColumnSum& p, Range rows, Range columns, float* sum) {
    const std::int64_t count = columns.last - columns.first;
    __builtin_memset(sum, 0, static_cast<std::size_t>(count) * sizeof(float));
    with_type(p.x.type, [&](auto* type) {
        const auto* x = as(p.x, type) + columns.first;
        const std::int64_t C = p.channels;
        std::int64_t row = rows.first;
        const auto load_row = [&](const auto* from, auto extent) MANTISSA_BODY {
            fetch(from + 4 * C);
            return load(from, extent);
        };
        for (; row + 4 <= rows.last; row += 4) {
            const auto* from = x + row * C;
            for_lanes(count, [&](std::int64_t c, auto extent) MANTISSA_BODY {
                const auto* at = from + c;
                const Float first = Lanes::add(load_row(at, extent), load_row(at + C, extent));
                const Float second = Lanes::add(load_row(at + 2 * C, extent), load_row(at + 3 * C, extent));
                store(sum + c, Lanes::add(load(sum + c, extent), Lanes::add(first, second)), extent, false);
            });
        }
        for (; row < rows.last; ++row)
            for_lanes(count, [&](std::int64_t c, auto extent) MANTISSA_BODY {
                const Float a = load(x + row * C + c, extent);
                store(sum + c, Lanes::add(load(sum + c, extent), a), extent, false);
            });
    });
}

}  // namespace
}  // namespace mantissa::on_cpu
