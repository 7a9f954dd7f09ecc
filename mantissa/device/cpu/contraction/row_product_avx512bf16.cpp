// A few rows of BF16 times a matrix of BF16 whose columns lie along the depth, in dot products of pairs
// (vdpbf16ps). Nothing is widened, so that eight rows take the time of reading the matrix. Numerics:
// docs/numerics.md.
#include "mantissa/device/cpu/contraction/row_product.h"
#include "mantissa/device/cpu/intrinsics.h"
#include "mantissa/device/cpu/modes/sums_of_four.h"
#include "mantissa/numerics/sixteen_bit.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t numbers_together = 32;

/// Some rows times some columns from j on, with all sums in registers: loops over them must vanish, or GCC
/// keeps a copy in memory. The next columns are fetched meanwhile, to L2: hardware foresees no stream that
/// rows are read beside.
template <int Rows, int Columns>
[[gnu::always_inline]] inline void sum_columns(const RowProduct& p, std::int64_t row, std::int64_t j,
                                               __m512 (&totals)[Rows][Columns]) {
    const BF16* const b = static_cast<const BF16*>(p.b) + j * p.stride;
    const BF16* const rows = static_cast<const BF16*>(p.rows) + row * p.row_stride;
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 3
        for (int c = 0; c < Columns; ++c) totals[r][c] = _mm512_setzero_ps();
    const auto add = [&](std::int64_t k, auto load) __attribute__((always_inline)) {
        __m512bh weights[Columns];
#pragma GCC unroll 3
        for (int c = 0; c < Columns; ++c) {
            __builtin_prefetch(b + (c + Columns) * p.stride + k, 0, 2);
            weights[c] = load(b + c * p.stride + k);
        }
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const __m512bh x = load(rows + r * p.row_stride + k);
#pragma GCC unroll 3
            for (int c = 0; c < Columns; ++c) totals[r][c] = _mm512_dpbf16_ps(totals[r][c], x, weights[c]);
        }
    };
    std::int64_t k = 0;
    for (; k + numbers_together <= p.depth; k += numbers_together)
        add(k, [](const BF16* from) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(from)); });
    if (k == p.depth) return;
    const __mmask32 rest = (std::uint32_t{1} << (p.depth - k)) - 1;
    add(k,
        [=](const BF16* from) { return reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16(rest, from)); });
}

template <int Rows, int Columns>
[[gnu::always_inline]] inline void multiply_columns(const RowProduct& p, std::int64_t row, std::int64_t j) {
    __m512 totals[Rows][Columns];
    sum_columns(p, row, j, totals);
    const __m512 none = _mm512_setzero_ps();
#pragma GCC unroll 2
    for (int first = 0; first < Rows; first += 4)
#pragma GCC unroll 3
        for (int c = 0; c < Columns; ++c) {
            alignas(16) float four[4];
            if constexpr (Rows < 4)
                _mm_store_ps(four, sums_of_four(totals[0][c], none, none, none));
            else
                _mm_store_ps(four, sums_of_four(totals[first][c], totals[first + 1][c], totals[first + 2][c],
                                                totals[first + 3][c]));
            for (int r = 0; r < 4 && r < Rows; ++r)
                p.sums[(row + first + r) * p.sums_stride + j + c] = four[r];
        }
}

/// Three columns at a time: of eight rows 24 sums, the columns and a row in registers.
template <int Rows>
void multiply_rows(const RowProduct& p, std::int64_t row) {
    std::int64_t j = 0;
    for (; j + 3 <= p.cols; j += 3) multiply_columns<Rows, 3>(p, row, j);
    for (; j < p.cols; ++j) multiply_columns<Rows, 1>(p, row, j);
}

void multiply(const RowProduct& p) {
    std::int64_t row = 0;
    for (; row + 8 <= p.count; row += 8) multiply_rows<8>(p, row);
    for (; row + 4 <= p.count; row += 4) multiply_rows<4>(p, row);
    for (; row < p.count; ++row) multiply_rows<1>(p, row);
}

}  // namespace

RowProductKernel row_product_of_pairs_avx512_bf16() { return multiply; }

}  // namespace mantissa::on_cpu
