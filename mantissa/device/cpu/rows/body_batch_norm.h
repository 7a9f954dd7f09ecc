// Batch normalisation and its gradient: sums over rows of a part of the columns, and the rows made with them.
// See body_loops.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_loops.h"
#include "mantissa/device/cpu/rows/problems.h"

namespace mantissa::inline v0::on_cpu {
namespace {

/// Rows that are walked over before the next columns are: their sums stay in registers meanwhile.
constexpr std::int64_t rows_of_walk = 16;

/// Adds up Vectors x 16 columns, or a part of 16: see add_columns().
template <int Vectors, class Extent, class Term>
MANTISSA_LANES void add_strip(std::int64_t channels, Range rows, std::int64_t column, float* sum,
                              Extent extent, Term term) {
    const std::int64_t C = channels;
    Float sums[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) sums[v] = load(sum + 16 * v, extent);
    std::int64_t row = rows.first;
    for (; row + 4 <= rows.last; row += 4)
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) {
            const std::int64_t here = column + 16 * v, at = row * C + here;
            const Float first = Lanes::add(term(at, here, extent), term(at + C, here, extent));
            const Float second = Lanes::add(term(at + 2 * C, here, extent), term(at + 3 * C, here, extent));
            sums[v] = Lanes::add(sums[v], Lanes::add(first, second));
        }
    for (; row < rows.last; ++row)
        for (int v = 0; v < Vectors; ++v) {
            const std::int64_t here = column + 16 * v;
            sums[v] = Lanes::add(sums[v], term(row * C + here, here, extent));
        }
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) store(sum + 16 * v, sums[v], extent, false);
}

/// term(pointer offset of an element, column, extent) of all rows, added to sum[columns]: four rows are added
/// up before they are added to a sum.
template <class Term>
MANTISSA_LANES void add_columns(std::int64_t channels, Range rows, Range columns, float* sum, Term term) {
    const std::int64_t count = columns.last - columns.first;
    for (Range some = {rows.first, rows.first}; some.first < rows.last; some.first = some.last) {
        some.last = some.first + rows_of_walk < rows.last ? some.first + rows_of_walk : rows.last;
        std::int64_t c = 0;
        for (; c + 32 <= count; c += 32)
            add_strip<2>(channels, some, columns.first + c, sum + c, Whole{}, term);
        for_lanes(count - c, [&](std::int64_t next, auto extent) MANTISSA_BODY {
            add_strip<1>(channels, some, columns.first + c + next, sum + c + next, extent, term);
        });
    }
}

MANTISSA_LANES void clear(float* sum, std::int64_t count) {
    __builtin_memset(sum, 0, static_cast<std::size_t>(count) * sizeof(float));
}

/// Moments of the differences from the first row. The differences are exact or nearly so where values lie far
/// from zero and close together.
void moments_part(const Moments& p, Range rows, Range columns, const MomentsOfPart& part) {
    float *const first_row = part.first_row, *const off_first = part.off_first, *const squares = part.squares;
    const std::int64_t count = columns.last - columns.first;
    const Float number = Lanes::constant(static_cast<float>(rows.last - rows.first));
    clear(off_first, count);
    clear(squares, count);
    with_type(p.x.type, [&](auto* type) {
        const auto* x = as(p.x, type);
        for_lanes(count, [&](std::int64_t c, auto extent) MANTISSA_BODY {
            store(first_row + c, load(x + rows.first * p.channels + columns.first + c, extent), extent,
                  false);
        });
        const auto difference = [&](std::int64_t at, std::int64_t column, auto extent) MANTISSA_BODY {
            return Lanes::subtract(load(x + at, extent), load(first_row + column - columns.first, extent));
        };
        add_columns(p.channels, rows, columns, off_first,
                    [&](std::int64_t at, std::int64_t column, auto extent) MANTISSA_BODY {
                        fetch(x + at + rows_of_walk * p.channels);
                        return difference(at, column, extent);
                    });
        for_lanes(count, [&](std::int64_t c, auto extent) MANTISSA_BODY {
            store(off_first + c, Lanes::divide(load(off_first + c, extent), number), extent, false);
        });
        add_columns(p.channels, rows, columns, squares,
                    [&](std::int64_t at, std::int64_t column, auto extent) MANTISSA_BODY {
                        const Float centered = Lanes::subtract(
                            difference(at, column, extent), load(off_first + column - columns.first, extent));
                        return Lanes::multiply(centered, centered);
                    });
    });
}

void normalize_rows(const Normalize& p, Range rows, Stores stores) {
    with_types(p.x.type, p.y.type, [&](auto* x_type, auto* y_type) {
        for (std::int64_t row = rows.first; row < rows.last; ++row) {
            const auto* x = as(p.x, x_type) + row * p.channels;
            auto* y = as(p.y, y_type) + row * p.channels;
            for_stored_lanes(y, p.channels, may_stream(stores, y),
                             [&](std::int64_t c, auto extent) MANTISSA_BODY {
                                 const Float centered =
                                     Lanes::subtract(load_ahead(x + c, extent), load(p.mean + c, extent));
                                 const Float scaled = Lanes::multiply(centered, load(p.scale + c, extent));
                                 return Lanes::add(scaled, load(p.beta + c, extent));
                             });
        }
    });
    Lanes::fence();
}

void batch_norm_grad_sums_part(const BatchNormGrad& p, Range rows, Range columns, float* sum_dy,
                               float* sum_dy_x) {
    const std::int64_t count = columns.last - columns.first;
    clear(sum_dy, count);
    clear(sum_dy_x, count);
    with_types(p.dy.type, p.x.type, [&](auto* dy_type, auto* x_type) {
        const auto* dy = as(p.dy, dy_type);
        const auto* x = as(p.x, x_type);
        // A few rows at a time, so that the second walk over dy finds it in L1.
        for (Range some = {rows.first, rows.first}; some.first < rows.last; some.first = some.last) {
            some.last = some.first + 8 < rows.last ? some.first + 8 : rows.last;
            add_columns(p.channels, some, columns, sum_dy,
                        [&](std::int64_t at, std::int64_t, auto extent) MANTISSA_BODY {
                            fetch(dy + at + 8 * p.channels);
                            return load(dy + at, extent);
                        });
            add_columns(p.channels, some, columns, sum_dy_x,
                        [&](std::int64_t at, std::int64_t column, auto extent) MANTISSA_BODY {
                            fetch(x + at + 8 * p.channels);
                            const Float centered =
                                Lanes::subtract(load(x + at, extent), load(p.mean + column, extent));
                            return Lanes::multiply(load(dy + at, extent), centered);
                        });
        }
    });
}

void batch_norm_grad_rows(const BatchNormGrad& p, const BatchNormGradScales& scales, Range rows,
                          Stores stores) {
    with_types(p.dy.type, p.x.type, [&](auto* dy_type, auto* x_type) {
        for (std::int64_t row = rows.first; row < rows.last; ++row) {
            const auto* dy = as(p.dy, dy_type) + row * p.channels;
            const auto* x = as(p.x, x_type) + row * p.channels;
            auto* dx = as(p.dx, x_type) + row * p.channels;
            for_stored_lanes(
                dx, p.channels, may_stream(stores, dx), [&](std::int64_t c, auto extent) MANTISSA_BODY {
                    const Float d =
                        Lanes::subtract(load_ahead(dy + c, extent), load(scales.mean_dy + c, extent));
                    const Float centered =
                        Lanes::subtract(load_ahead(x + c, extent), load(p.mean + c, extent));
                    const Float rest =
                        Lanes::subtract(d, Lanes::multiply(centered, load(scales.slope + c, extent)));
                    return Lanes::multiply(load(scales.scale + c, extent), rest);
                });
        }
    });
    Lanes::fence();
}

}  // namespace
}  // namespace mantissa::on_cpu
