// A few rows times a matrix of bytes for AVX2: sizes of the matrix's numbers times those of the rows, with
// the signs of both (vpmaddubsw). Numbers of at most 127 leave the sum of two products within 16 bits.
#include <immintrin.h>

#include "mantissa/device/cpu/modes/row_mode.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t width = 32;

inline __m256i load(const void* bytes) { return _mm256_loadu_si256(static_cast<const __m256i*>(bytes)); }

inline std::int32_t total(__m256i sums) {
    const __m128i half = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    const __m128i quarter = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(quarter, _mm_shuffle_epi32(quarter, 0xb1)));
}

template <int Rows>
[[gnu::always_inline]] inline void add_products(const std::int8_t* const (&rows)[Rows], std::int64_t k,
                                                __m256i numbers, __m256i (&sums)[Rows]) {
    const __m256i sizes = _mm256_abs_epi8(numbers), ones = _mm256_set1_epi16(1);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
        const __m256i pairs = _mm256_maddubs_epi16(sizes, _mm256_sign_epi8(load(rows[r] + k), numbers));
        sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(pairs, ones));
    }
}

template <int Rows>
void multiply(const RowMode& p, std::int64_t first) {
    const std::int8_t* rows[Rows];
    for (int r = 0; r < Rows; ++r) rows[r] = p.rows + (first + r) * p.row_stride;
    for (std::int64_t j = 0; j < p.cols; ++j) {
        const std::uint8_t* const b = p.b + j * p.bytes;
        __m256i sums[Rows];
        for (__m256i& sum : sums) sum = _mm256_setzero_si256();
        std::int64_t k = 0;
        for (; k + 2 * width <= p.bytes; k += 2 * width) {
            add_products<Rows>(rows, k, load(b + k), sums);
            add_products<Rows>(rows, k + width, load(b + k + width), sums);
        }
        for (; k < p.bytes; k += width) {
            // Behind the row lies another, or nothing.
            alignas(32) std::uint8_t part[width] = {};
            for (std::int64_t i = 0; i < width && i < p.bytes - k; ++i) part[i] = b[k + i];
            add_products<Rows>(rows, k, load(part), sums);
        }
        for (int r = 0; r < Rows; ++r) p.sums[(first + r) * p.leading + j] = total(sums[r]);
    }
}

void multiply_s8(const RowMode& p) {
    std::int64_t row = 0;
    for (; row + 4 <= p.count; row += 4) multiply<4>(p, row);
    for (; row < p.count; ++row) multiply<1>(p, row);
}

}  // namespace

RowModeKernels row_mode_avx2() { return {.name = "avx2", .s8 = multiply_s8}; }

}  // namespace mantissa::on_cpu
