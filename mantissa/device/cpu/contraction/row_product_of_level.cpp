// A few rows times a matrix over the lanes of the row kernels. Bound by memory, so products are rounded
// before they are added, which gives the same bits on every level.
#include "mantissa/device/cpu/rows/lanes_of_level.h"
// The lanes come first, since the files below use them.
#include "mantissa/device/cpu/contraction/row_product.h"
#include "mantissa/device/cpu/rows/body_loops.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// One column after the other, and no prefetch: so memory is read as one stream, which hardware fetches ahead
/// by itself, into L2. Two columns at a time, or a prefetch into L1, end at that cache's misses in flight: 11
/// GB/s a core where one stream reaches 26 (Zen 4).
template <class Element>
void one_row_along(const RowProduct& p) {
    const auto* const b = static_cast<const Element*>(p.b);
    const auto* const row = static_cast<const float*>(p.rows);
    for (std::int64_t j = 0; j < p.cols; ++j) {
        FourSums total = FourSums::zero();
        for_lanes_in_four(p.depth, [&](std::int64_t k, int slot, auto extent) MANTISSA_BODY {
            total.add(slot, Lanes::multiply(load(row + k, extent), load(b + j * p.stride + k, extent)));
        });
        p.sums[j] = total.total();
    }
}

/// Some rows times some columns from j on, with all sums in registers: loops over them must vanish, or GCC
/// keeps a copy in memory. The next columns are fetched meanwhile: hardware foresees no stream that rows of a
/// are read beside.
template <int Rows, int Columns, class Element>
void multiply_columns(const RowProduct& p, std::int64_t row, std::int64_t j) {
    const Element* const column = static_cast<const Element*>(p.b) + j * p.stride;
    const float* const rows = static_cast<const float*>(p.rows) + row * p.row_stride;
    Float totals[Rows][Columns];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 3
        for (int c = 0; c < Columns; ++c) totals[r][c] = Lanes::constant(0.0f);
    for_lanes(p.depth, [&](std::int64_t k, auto extent) MANTISSA_BODY {
        Float weights[Columns];
#pragma GCC unroll 3
        for (int c = 0; c < Columns; ++c) {
            fetch(column + (c + Columns) * p.stride + k);
            weights[c] = load(column + c * p.stride + k, extent);
        }
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const Float x = load(rows + r * p.row_stride + k, extent);
#pragma GCC unroll 3
            for (int c = 0; c < Columns; ++c)
                totals[r][c] = Lanes::add(totals[r][c], Lanes::multiply(x, weights[c]));
        }
    });
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 3
        for (int c = 0; c < Columns; ++c)
            p.sums[(row + r) * p.sums_stride + j + c] = Lanes::sum(totals[r][c]);
}

template <int Rows, int Columns, class Element>
void rows_along(const RowProduct& p, std::int64_t row) {
    std::int64_t j = 0;
    for (; j + Columns <= p.cols; j += Columns) multiply_columns<Rows, Columns, Element>(p, row, j);
    for (; j < p.cols; ++j) multiply_columns<Rows, 1, Element>(p, row, j);
}

/// `Rows`: the most at a time, whose sums with three columns are in registers.
template <int Rows, class Element>
void row_product_along(const RowProduct& p) {
    if (p.count == 1) return one_row_along<Element>(p);
    std::int64_t row = 0;
    for (; row + Rows <= p.count; row += Rows) rows_along<Rows, 3, Element>(p, row);
    constexpr int fewer = Rows > 2 ? Rows / 2 : 1;
    for (; row + fewer <= p.count; row += fewer) rows_along<fewer, 3, Element>(p, row);
    for (; row < p.count; ++row) rows_along<1, 3, Element>(p, row);
}

/// Adds `Depth` stored rows of b, from row k on, to the sums, which stay in L1.
template <int Depth, class Element>
void add_rows(const RowProduct& p, const Element* b, std::int64_t k) {
    for_lanes(p.cols, [&](std::int64_t j, auto extent) MANTISSA_BODY {
        Float stored[Depth];
        for (int i = 0; i < Depth; ++i) {
            // The rows of the next step: hardware foresees no stream of short rows.
            __builtin_prefetch(b + (k + i + Depth) * p.stride + j);
            stored[i] = load(b + (k + i) * p.stride + j, extent);
        }
        for (std::int64_t r = 0; r < p.count; ++r) {
            const float* const row = static_cast<const float*>(p.rows) + r * p.row_stride + k;
            float* const at = p.sums + r * p.sums_stride + j;
            Float sum = load(at, extent);
            for (int i = 0; i < Depth; ++i)
                sum = Lanes::add(sum, Lanes::multiply(Lanes::constant(row[i]), stored[i]));
            store(at, sum, extent, false);
        }
    });
}

template <class Element>
void row_product_across(const RowProduct& p) {
    const auto* const b = static_cast<const Element*>(p.b);
    for (std::int64_t r = 0; r < p.count; ++r)
        for_lanes(p.cols, [&](std::int64_t j, auto extent) MANTISSA_BODY {
            store(p.sums + r * p.sums_stride + j, Lanes::constant(0.0f), extent, false);
        });
    std::int64_t k = 0;
    for (; k + 4 <= p.depth; k += 4) add_rows<4>(p, b, k);
    for (; k < p.depth; ++k) add_rows<1>(p, b, k);
}

}  // namespace

RowProductKernels MANTISSA_OF_LEVEL(row_product)() {
    // The number of rows whose sums are in registers at a time.
    constexpr int rows = Lanes::registers == 32 ? 8 : 2;
    return {{{row_product_along<rows, float>, row_product_along<rows, BF16>},
             {row_product_across<float>, row_product_across<BF16>}}};
}

}  // namespace mantissa::on_cpu
