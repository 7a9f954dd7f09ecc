// A few rows times columns that run along the depth, over the dot products of a level. In an anonymous
// namespace, so that each source keeps its own copy, compiled for its own level.
//
// Dots: `Row` and `Column`, elements in memory; `Numbers`, `together` elements of a row in a register, and
// `Weights`, those of a column; `Sums`; `rows` and `columns`, whose sums stay in registers; and load,
// load_first, weights_of, zero, add and store.
#pragma once

#include <cstdint>

#include "mantissa/device/cpu/contraction/row_product.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// The distance, in bytes, of the lines that are fetched ahead to L2: hardware fetches a few streams side by
/// side, but not early enough. At 4 KB memory waits, from 8 to 32 KB measured about the same (Zen 4), but not
/// where columns read side by side, of so many bytes, are more: then the last of them come ahead of the
/// first, just before they are read, which took a sixth longer.
[[gnu::always_inline]] inline std::int64_t fetched_ahead(std::int64_t side_by_side) {
    constexpr std::int64_t least = 16 << 10;
    return side_by_side > least ? side_by_side : least;
}

/// Whether the matrix is fetched, or read as one stream, which hardware fetches by itself.
enum class Fetch : std::uint8_t { no, yes };

/// Some rows times some columns from j on, with all sums in registers: loops over them must vanish, or GCC
/// keeps a copy in memory.
template <class Dots, Fetch fetch, int Rows, int Columns>
[[gnu::always_inline]] inline void multiply_columns(const RowProduct& p, std::int64_t row, std::int64_t j) {
    const auto* const b = static_cast<const typename Dots::Column*>(p.b) + j * p.stride;
    const auto* const rows = static_cast<const typename Dots::Row*>(p.rows) + row * p.row_stride;
    const std::int64_t ahead = fetched_ahead(Columns * p.stride * static_cast<std::int64_t>(sizeof *b));
    typename Dots::Sums totals[Columns][Rows];
#pragma GCC unroll 3
    for (int c = 0; c < Columns; ++c)
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) totals[c][r] = Dots::zero();
    const auto add = [&](std::int64_t k, auto load) __attribute__((always_inline)) {
        typename Dots::Weights weights[Columns];
#pragma GCC unroll 3
        for (int c = 0; c < Columns; ++c) {
            const auto* const at = b + c * p.stride + k;
            if (fetch == Fetch::yes) __builtin_prefetch(reinterpret_cast<const char*>(at) + ahead, 0, 2);
            weights[c] = Dots::weights_of(load(at));
        }
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const typename Dots::Numbers x = load(rows + r * p.row_stride + k);
#pragma GCC unroll 3
            for (int c = 0; c < Columns; ++c) totals[c][r] = Dots::add(totals[c][r], x, weights[c]);
        }
    };
    std::int64_t k = 0;
    for (; k + Dots::together <= p.depth; k += Dots::together)
        add(
            k, [](const auto* from) __attribute__((always_inline)) { return Dots::load(from); });
    if (const std::int64_t rest = p.depth - k; rest > 0)
        add(
            k, [=](const auto* from) __attribute__((always_inline)) { return Dots::load_first(from, rest); });
#pragma GCC unroll 3
    for (int c = 0; c < Columns; ++c)
        Dots::store(totals[c], p.sums + row * p.sums_stride + j + c, p.sums_stride);
}

template <class Dots, int Rows>
void multiply_some_rows(const RowProduct& p, std::int64_t row) {
    std::int64_t j = 0;
    for (; j + Dots::columns <= p.cols; j += Dots::columns)
        multiply_columns<Dots, Fetch::yes, Rows, Dots::columns>(p, row, j);
    for (; j < p.cols; ++j) multiply_columns<Dots, Fetch::yes, Rows, 1>(p, row, j);
}

/// A single row: one column after the other.
template <class Dots>
void multiply_one_row_along(const RowProduct& p) {
    for (std::int64_t j = 0; j < p.cols; ++j) multiply_columns<Dots, Fetch::no, 1, 1>(p, 0, j);
}

template <class Dots>
void multiply_rows_along(const RowProduct& p) {
    constexpr int fewer = Dots::rows > 2 ? Dots::rows / 2 : 1;
    std::int64_t row = 0;
    for (; row + Dots::rows <= p.count; row += Dots::rows) multiply_some_rows<Dots, Dots::rows>(p, row);
    for (; row + fewer <= p.count; row += fewer) multiply_some_rows<Dots, fewer>(p, row);
    for (; row < p.count; ++row) multiply_some_rows<Dots, 1>(p, row);
}

}  // namespace

}  // namespace mantissa::on_cpu
