// Batch normalisation and its gradient: sums over rows of a part of the columns, and what is made with them.
// See body_loops.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_loops.h"
#include "mantissa/device/cpu/rows/image_problems.h"

namespace mantissa::inline v0::on_cpu {
namespace {

/// Rows that are walked over before the next columns are: their sums stay in registers meanwhile.
constexpr std::int64_t rows_of_walk = 16;

/// Two numbers that are added up together.
struct Pair {
    Float first, second;
};
MANTISSA_LANES Pair add(const Pair& a, const Pair& b) {
    return {Lanes::add(a.first, b.first), Lanes::add(a.second, b.second)};
}

/// Sums of pairs, by column.
struct PairSums {
    float *first, *second;

    template <class Extent>
    MANTISSA_LANES Pair get(const PairSums& of, std::int64_t c, Extent extent) {
        return {load(of.first + c, extent), load(of.second + c, extent)};
    }
    template <class Extent>
    MANTISSA_LANES void set(const PairSums& of, std::int64_t c, const Pair& sums, Extent extent) {
        store(of.first + c, sums.first, extent, false);
        store(of.second + c, sums.second, extent, false);
    }
    static void clear(const PairSums& of, std::int64_t count) {
        __builtin_memset(of.first, 0, static_cast<std::size_t>(count) * sizeof(float));
        __builtin_memset(of.second, 0, static_cast<std::size_t>(count) * sizeof(float));
    }
};

/// Adds up Vectors x 16 columns from the c-th on, or a part of 16: see add_columns().
template <int Vectors, class Extent, class Term>
MANTISSA_LANES void add_strip(std::int64_t channels, Range rows, std::int64_t column, std::int64_t c,
                              const PairSums& sum, Extent extent, Term term) {
    const std::int64_t C = channels;
    Pair sums[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) sums[v] = PairSums::get(sum, c + 16 * v, extent);
    std::int64_t row = rows.first;
    for (; row + 4 <= rows.last; row += 4)
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) {
            const std::int64_t here = c + 16 * v, at = row * C + column + here;
            const Pair first = add(term(at, here, extent), term(at + C, here, extent));
            const Pair second = add(term(at + 2 * C, here, extent), term(at + 3 * C, here, extent));
            sums[v] = add(sums[v], add(first, second));
        }
    for (; row < rows.last; ++row)
        for (int v = 0; v < Vectors; ++v) {
            const std::int64_t here = c + 16 * v;
            sums[v] = add(sums[v], term(row * C + column + here, here, extent));
        }
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) PairSums::set(sum, c + 16 * v, sums[v], extent);
}

/// term(offset of an element, its column, counted from the first one, extent) of all rows, added to the sums:
/// four rows are added up before they are added to a sum.
template <class Term>
MANTISSA_LANES void add_columns(std::int64_t channels, Range rows, Range columns, const PairSums& sum,
                                Term term) {
    const std::int64_t count = columns.last - columns.first;
    for (Range some = {rows.first, rows.first}; some.first < rows.last; some.first = some.last) {
        some.last = some.first + rows_of_walk < rows.last ? some.first + rows_of_walk : rows.last;
        std::int64_t c = 0;
        for (; c + 32 <= count; c += 32) add_strip<2>(channels, some, columns.first, c, sum, Whole{}, term);
        for_lanes(count - c, [&](std::int64_t next, auto extent) MANTISSA_BODY {
            add_strip<1>(channels, some, columns.first, c + next, sum, extent, term);
        });
    }
}

/// Rows whose sums are of what differs from the first of them, which is exact or nearly so where values lie
/// far from zero and close together. It lies at most sqrt(rows - 1) of their deviations away from their mean,
/// so that their variance loses at most a factor of as many rows to cancellation.
constexpr std::int64_t rows_of_pivot = 64;

void moments_part(const Moments& p, Range rows, Range columns, const MomentsOfPart& part) {
    const std::int64_t count = columns.last - columns.first;
    float pivot[columns_of_part], sums[columns_of_part], sums_of_squares[columns_of_part];
    const PairSums sum{sums, sums_of_squares}, all{part.off_first, part.squares};
    PairSums::clear(all, count);
    with_type(p.x.type, [&](auto* type) {
        const auto* x = as(p.x, type);
        const auto copy_row = [&](std::int64_t row, float* to) {
            for_lanes(count, [&](std::int64_t c, auto extent) MANTISSA_BODY {
                store(to + c, load(x + row * p.channels + columns.first + c, extent), extent, false);
            });
        };
        copy_row(rows.first, part.first_row);
        for (Range some = {rows.first, rows.first}; some.first < rows.last; some.first = some.last) {
            some.last = some.first + rows_of_pivot < rows.last ? some.first + rows_of_pivot : rows.last;
            copy_row(some.first, pivot);
            PairSums::clear(sum, count);
            add_columns(p.channels, some, columns, sum,
                        [&](std::int64_t at, std::int64_t c, auto extent) MANTISSA_BODY {
                            fetch(x + at + rows_of_walk * p.channels);
                            const Float off = Lanes::subtract(load(x + at, extent), load(pivot + c, extent));
                            return Pair{off, Lanes::multiply(off, off)};
                        });
            // Chan, Golub, LeVeque 1979: mean and squares of two sets of rows become those of both.
            const auto before = static_cast<float>(some.first - rows.first),
                       here = static_cast<float>(some.last - some.first), both = before + here;
            const Float number = Lanes::constant(here), share = Lanes::constant(here / both),
                        weight = Lanes::constant(before * (here / both));
            for_lanes(count, [&](std::int64_t c, auto extent) MANTISSA_BODY {
                const Pair so_far = PairSums::get(all, c, extent), more = PairSums::get(sum, c, extent);
                const Float mean = Lanes::divide(more.first, number);
                const Float pivots =
                    Lanes::subtract(load(pivot + c, extent), load(part.first_row + c, extent));
                const Float apart = Lanes::subtract(Lanes::add(pivots, mean), so_far.first);
                const Float squares = Lanes::subtract(more.second, Lanes::multiply(more.first, mean));
                const Float moved = Lanes::multiply(Lanes::multiply(apart, apart), weight);
                PairSums::set(
                    all, c, add(so_far, {Lanes::multiply(apart, share), Lanes::add(squares, moved)}), extent);
            });
        }
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
    const PairSums sum{sum_dy, sum_dy_x};
    PairSums::clear(sum, columns.last - columns.first);
    with_types(p.dy.type, p.x.type, [&](auto* dy_type, auto* x_type) {
        const auto* dy = as(p.dy, dy_type);
        const auto* x = as(p.x, x_type);
        const float* const mean = p.mean + columns.first;
        add_columns(p.channels, rows, columns, sum,
                    [&](std::int64_t at, std::int64_t c, auto extent) MANTISSA_BODY {
                        fetch(dy + at + rows_of_walk * p.channels);
                        fetch(x + at + rows_of_walk * p.channels);
                        const Float d = load(dy + at, extent);
                        const Float centered = Lanes::subtract(load(x + at, extent), load(mean + c, extent));
                        return Pair{d, Lanes::multiply(d, centered)};
                    });
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
