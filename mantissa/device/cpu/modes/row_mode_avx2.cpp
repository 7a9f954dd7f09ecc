// A row times a matrix of whole numbers for AVX2: widened to 16 bits, where sums of two products are exact.
#include <immintrin.h>

#include "mantissa/device/cpu/modes/row_mode.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t width = 16;

inline std::int64_t padded(std::int64_t bytes) {
    return (bytes + row_mode_step - 1) / row_mode_step * row_mode_step;
}

inline __m128i load_part(const std::uint8_t* from, std::int64_t left) {
    if (left >= width) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    alignas(16) std::uint8_t part[width] = {};
    for (std::int64_t i = 0; i < left; ++i) part[i] = from[i];
    return _mm_load_si128(reinterpret_cast<const __m128i*>(part));
}

inline __m256i widened(__m128i bytes) { return _mm256_cvtepi8_epi16(bytes); }
inline __m256i row_at(const std::int8_t* row) {
    return widened(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row)));
}

inline std::int32_t total(__m256i sums) {
    const __m128i half = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    const __m128i quarter = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(quarter, _mm_shuffle_epi32(quarter, 0xb1)));
}

void multiply_s8(const RowMode& p) {
    for (std::int64_t j = 0; j < p.cols; ++j) {
        const std::uint8_t* const b = p.b + j * p.bytes;
        __m256i sums = _mm256_setzero_si256();
        for (std::int64_t k = 0; k < p.bytes; k += width) {
            const __m256i numbers = widened(load_part(b + k, p.bytes - k));
            sums = _mm256_add_epi32(sums, _mm256_madd_epi16(numbers, row_at(p.row + k)));
        }
        p.sums[j] = total(sums);
    }
}

void multiply_s4(const RowMode& p) {
    const __m128i low = _mm_set1_epi8(15), shift = _mm_set1_epi8(8);
    const auto numbers = [&](__m128i halves) {
        return widened(_mm_sub_epi8(_mm_xor_si128(_mm_and_si128(halves, low), shift), shift));
    };
    const std::int8_t* const odd = p.row + padded(p.bytes);
    for (std::int64_t j = 0; j < p.cols; ++j) {
        const std::uint8_t* const b = p.b + j * p.bytes;
        __m256i sums = _mm256_setzero_si256();
        for (std::int64_t k = 0; k < p.bytes; k += width) {
            const __m128i pairs = load_part(b + k, p.bytes - k);
            const __m256i even = _mm256_madd_epi16(numbers(pairs), row_at(p.row + k));
            const __m256i rest = _mm256_madd_epi16(numbers(_mm_srli_epi16(pairs, 4)), row_at(odd + k));
            sums = _mm256_add_epi32(sums, _mm256_add_epi32(even, rest));
        }
        p.sums[j] = total(sums);
    }
}

}  // namespace

RowModeKernels row_mode_avx2() { return {.name = "avx2", .s8 = multiply_s8, .s4 = multiply_s4}; }

}  // namespace mantissa::on_cpu
