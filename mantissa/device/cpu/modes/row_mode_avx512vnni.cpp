// A row times a matrix of whole numbers in dot products of four bytes (vpdpbusd), which take one operand for
// unsigned: numbers of the matrix come 128 (of half bytes 8) too large, and so often the sum of the row is
// taken off again.
// GCC 12 takes the undefined operand inside its own intrinsics for a mistake of ours.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "mantissa/device/cpu/modes/row_mode.h"

namespace mantissa::inline v0::on_cpu {

namespace {

inline std::int64_t padded(std::int64_t bytes) {
    return (bytes + row_mode_step - 1) / row_mode_step * row_mode_step;
}

inline __m512i load_part(const std::uint8_t* from, std::int64_t left) {
    if (left >= row_mode_step) return _mm512_loadu_si512(from);
    return _mm512_maskz_loadu_epi8((std::uint64_t{1} << left) - 1, from);
}

/// One row of b after the other, as one stream: see row_product_body.h.
void multiply_s8(const RowMode& p) {
    const __m512i shift = _mm512_set1_epi8(static_cast<char>(0x80));
    for (std::int64_t j = 0; j < p.cols; ++j) {
        const std::uint8_t* const b = p.b + j * p.bytes;
        __m512i total = _mm512_setzero_si512();
        for (std::int64_t k = 0; k < p.bytes; k += row_mode_step) {
            const __m512i numbers = _mm512_xor_si512(load_part(b + k, p.bytes - k), shift);
            total = _mm512_dpbusd_epi32(total, numbers, _mm512_loadu_si512(p.row + k));
        }
        p.sums[j] = _mm512_reduce_add_epi32(total) - 128 * p.row_sum;
    }
}

void multiply_s4(const RowMode& p) {
    const __m512i low = _mm512_set1_epi8(15), shift = _mm512_set1_epi8(8);
    const std::int8_t* const odd = p.row + padded(p.bytes);
    for (std::int64_t j = 0; j < p.cols; ++j) {
        const std::uint8_t* const b = p.b + j * p.bytes;
        __m512i evens = _mm512_setzero_si512(), odds = _mm512_setzero_si512();
        for (std::int64_t k = 0; k < p.bytes; k += row_mode_step) {
            const __m512i pairs = load_part(b + k, p.bytes - k);
            const __m512i first = _mm512_xor_si512(_mm512_and_si512(pairs, low), shift);
            const __m512i second =
                _mm512_xor_si512(_mm512_and_si512(_mm512_srli_epi16(pairs, 4), low), shift);
            evens = _mm512_dpbusd_epi32(evens, first, _mm512_loadu_si512(p.row + k));
            odds = _mm512_dpbusd_epi32(odds, second, _mm512_loadu_si512(odd + k));
        }
        p.sums[j] = _mm512_reduce_add_epi32(_mm512_add_epi32(evens, odds)) - 8 * p.row_sum;
    }
}

}  // namespace

RowModeKernels row_mode_avx512_vnni() {
    return {.name = "avx512_vnni", .s8 = multiply_s8, .s4 = multiply_s4};
}

}  // namespace mantissa::on_cpu
