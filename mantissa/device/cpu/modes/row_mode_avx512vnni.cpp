// A few rows times a matrix of bytes in dot products of four (vpdpbusd), which take one operand for unsigned:
// numbers of the matrix come 128 too large, and so often the sum of the row is taken off again.
// GCC 12 takes the undefined operand inside its own intrinsics for a mistake of ours.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "mantissa/device/cpu/modes/row_mode.h"

namespace mantissa::inline v0::on_cpu {

namespace {

inline __m512i load_part(const std::uint8_t* from, std::int64_t left) {
    if (left >= row_mode_step) return _mm512_loadu_si512(from);
    return _mm512_maskz_loadu_epi8((std::uint64_t{1} << left) - 1, from);
}

/// Some rows times some columns from j on, with all sums in registers.
template <int Rows, int Columns>
void multiply_columns(const RowMode& p, std::int64_t row, std::int64_t j) {
    const __m512i shift = _mm512_set1_epi8(static_cast<char>(0x80));
    const std::uint8_t* const b = p.b + j * p.bytes;
    const std::int8_t* const rows = p.rows + row * p.row_stride;
    __m512i totals[Rows][Columns];
    for (auto& of_row : totals)
        for (__m512i& total : of_row) total = _mm512_setzero_si512();
    for (std::int64_t k = 0; k < p.bytes; k += row_mode_step) {
        __m512i numbers[Columns];
        for (int c = 0; c < Columns; ++c) {
            // Hardware foresees no stream that rows are read beside; one row alone is read as one stream.
            if (Rows > 1) __builtin_prefetch(b + (c + Columns) * p.bytes + k, 0, 2);
            numbers[c] = _mm512_xor_si512(load_part(b + c * p.bytes + k, p.bytes - k), shift);
        }
        for (int r = 0; r < Rows; ++r) {
            const __m512i of_row = _mm512_loadu_si512(rows + r * p.row_stride + k);
            for (int c = 0; c < Columns; ++c)
                totals[r][c] = _mm512_dpbusd_epi32(totals[r][c], numbers[c], of_row);
        }
    }
    for (int r = 0; r < Rows; ++r)
        for (int c = 0; c < Columns; ++c)
            p.sums[(row + r) * p.leading + j + c] =
                _mm512_reduce_add_epi32(totals[r][c]) - 128 * p.row_sums[row + r];
}

template <int Rows, int Columns>
void multiply_rows(const RowMode& p, std::int64_t row) {
    std::int64_t j = 0;
    for (; j + Columns <= p.cols; j += Columns) multiply_columns<Rows, Columns>(p, row, j);
    for (; j < p.cols; ++j) multiply_columns<Rows, 1>(p, row, j);
}

/// For one row the matrix is read as one stream: see row_product_body.h.
void multiply_s8(const RowMode& p) {
    if (p.count == 1) return multiply_rows<1, 1>(p, 0);
    std::int64_t row = 0;
    for (; row + 8 <= p.count; row += 8) multiply_rows<8, 3>(p, row);
    for (; row + 4 <= p.count; row += 4) multiply_rows<4, 3>(p, row);
    for (; row < p.count; ++row) multiply_rows<1, 3>(p, row);
}

}  // namespace

RowModeKernels row_mode_avx512_vnni() { return {.name = "avx512_vnni", .s8 = multiply_s8}; }

}  // namespace mantissa::on_cpu
