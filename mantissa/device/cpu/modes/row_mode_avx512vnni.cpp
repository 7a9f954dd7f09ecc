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

/// One row of b after the other, as one stream: see row_product_body.h. For the next rows it is in L1.
void multiply_s8(const RowMode& p) {
    const __m512i shift = _mm512_set1_epi8(static_cast<char>(0x80));
    for (std::int64_t j = 0; j < p.cols; ++j)
        for (std::int64_t r = 0; r < p.count; ++r) {
            const std::int8_t* const row = p.rows + r * p.row_stride;
            const std::uint8_t* const b = p.b + j * p.bytes;
            __m512i total = _mm512_setzero_si512();
            for (std::int64_t k = 0; k < p.bytes; k += row_mode_step) {
                const __m512i numbers = _mm512_xor_si512(load_part(b + k, p.bytes - k), shift);
                total = _mm512_dpbusd_epi32(total, numbers, _mm512_loadu_si512(row + k));
            }
            p.sums[r * p.leading + j] = _mm512_reduce_add_epi32(total) - 128 * p.row_sums[r];
        }
}

}  // namespace

RowModeKernels row_mode_avx512_vnni() { return {.name = "avx512_vnni", .s8 = multiply_s8}; }

}  // namespace mantissa::on_cpu
