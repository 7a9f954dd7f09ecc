// A few rows times a matrix of bytes in dot products of four (vpdpbusd), which take one operand for unsigned:
// numbers of the matrix come 128 too large, and so often the sum of the row is taken off again.

#include "mantissa/device/cpu/intrinsics.h"
#include "mantissa/device/cpu/modes/fetched_ahead.h"
#include "mantissa/device/cpu/modes/row_mode.h"
#include "mantissa/device/cpu/modes/sums_of_four.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// Some rows times some columns from j on, with all sums in registers: loops over them must vanish, or GCC
/// keeps a copy of the sums in memory, which took longer than the products.
template <Fetch fetch, int Rows, int Columns>
[[gnu::always_inline]] inline void sum_columns(const RowMode& p, std::int64_t row, std::int64_t j,
                                               __m512i (&totals)[Rows][Columns]) {
    const __m512i shift = _mm512_set1_epi8(static_cast<char>(0x80));
    const std::uint8_t* const b = p.b + j * p.bytes;
    const std::int8_t* const rows = p.rows + row * p.row_stride;
    const std::int64_t ahead = fetched_ahead(Columns * p.bytes);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c) totals[r][c] = _mm512_setzero_si512();
    const auto add = [&](std::int64_t k, auto load) __attribute__((always_inline)) {
        __m512i numbers[Columns];
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c) {
            if (fetch == Fetch::yes) __builtin_prefetch(b + c * p.bytes + k + ahead, 0, 2);
            numbers[c] = _mm512_xor_si512(load(b + c * p.bytes + k), shift);
        }
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const __m512i of_row = _mm512_loadu_si512(rows + r * p.row_stride + k);
#pragma GCC unroll 4
            for (int c = 0; c < Columns; ++c)
                totals[r][c] = _mm512_dpbusd_epi32(totals[r][c], numbers[c], of_row);
        }
    };
    std::int64_t k = 0;
    for (; k + row_mode_step <= p.bytes; k += row_mode_step)
        add(k, [](const std::uint8_t* from) { return _mm512_loadu_si512(from); });
    if (k == p.bytes) return;
    const __mmask64 rest = (std::uint64_t{1} << (p.bytes - k)) - 1;
    add(k, [=](const std::uint8_t* from) { return _mm512_maskz_loadu_epi8(rest, from); });
}

template <Fetch fetch, int Columns>
[[gnu::always_inline]] inline void multiply_four_rows(const RowMode& p, std::int64_t row, std::int64_t j) {
    __m512i totals[4][Columns];
    sum_columns<fetch>(p, row, j, totals);
    const __m128i of_rows = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p.row_sums + row));
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) {
        alignas(16) std::int32_t four[4];
        _mm_store_si128(reinterpret_cast<__m128i*>(four),
                        _mm_sub_epi32(sums_of_four(totals[0][c], totals[1][c], totals[2][c], totals[3][c]),
                                      _mm_slli_epi32(of_rows, 7)));
        for (int r = 0; r < 4; ++r) p.sums[(row + r) * p.leading + j + c] = four[r];
    }
}

/// Four columns at a time: sixteen sums, the columns and a row in registers.
template <Fetch fetch>
void multiply_four_rows(const RowMode& p, std::int64_t row) {
    std::int64_t j = 0;
    for (; j + 4 <= p.cols; j += 4) multiply_four_rows<fetch, 4>(p, row, j);
    for (; j < p.cols; ++j) multiply_four_rows<fetch, 1>(p, row, j);
}

/// The matrix is read as one stream, which hardware fetches by itself: one column after the other: see
/// row_product_body.h.
void multiply_one_row(const RowMode& p, std::int64_t row) {
    for (std::int64_t j = 0; j < p.cols; ++j) {
        __m512i total[1][1];
        sum_columns<Fetch::no>(p, row, j, total);
        p.sums[row * p.leading + j] = _mm512_reduce_add_epi32(total[0][0]) - 128 * p.row_sums[row];
    }
}

void multiply_s8(const RowMode& p) {
    std::int64_t row = 0;
    for (; row + 4 <= p.count; row += 4)
        if (row == 0)
            multiply_four_rows<Fetch::yes>(p, row);
        else
            multiply_four_rows<Fetch::no>(p, row);
    for (; row < p.count; ++row) multiply_one_row(p, row);
}

}  // namespace

RowModeKernels row_mode_avx512_vnni() { return {.name = "avx512_vnni", .s8 = multiply_s8}; }

}  // namespace mantissa::on_cpu
