// Lanes for AVX2 and FMA: the twins of those in lanes_generic.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define MANTISSA_MODE_LANES [[gnu::always_inline]] static inline

namespace mantissa::inline v0::on_cpu {
namespace {

struct Avx2F64Lanes {
    static constexpr int width = 4, depth_of_word = 1;
    using Sums = __m256d;
    using Words = __m256d;

    MANTISSA_MODE_LANES Sums zero() { return _mm256_setzero_pd(); }
    MANTISSA_MODE_LANES Words broadcast(const std::byte* word) {
        return _mm256_broadcast_sd(reinterpret_cast<const double*>(word));
    }
    MANTISSA_MODE_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        return _mm256_fmadd_pd(row, column, sums);
    }
    MANTISSA_MODE_LANES void hide(Sums& a) { asm volatile("" : "+x"(a)); }
};

/// FP16 numbers as FP32; how their sums are rounded once, GenericF16Lanes says.
struct Avx2F16Lanes {
    static constexpr int width = 8, depth_of_word = 1;
    using Sums = __m256;
    using Words = __m256;

    MANTISSA_MODE_LANES Sums zero() { return _mm256_setzero_ps(); }
    MANTISSA_MODE_LANES Words broadcast(const std::byte* word) {
        return _mm256_broadcast_ss(reinterpret_cast<const float*>(word));
    }
    MANTISSA_MODE_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        const __m256 product = _mm256_mul_ps(row, column), sum = _mm256_add_ps(sums, product);
        const __m256 of_product = _mm256_sub_ps(sum, sums);
        const __m256 error = _mm256_add_ps(_mm256_sub_ps(sums, _mm256_sub_ps(sum, of_product)),
                                           _mm256_sub_ps(product, of_product));
        const __m256 inexact = _mm256_cmp_ps(error, _mm256_setzero_ps(), _CMP_NEQ_OQ);  // false of a NaN
        const __m256i one = _mm256_set1_epi32(1), bits = _mm256_castps_si256(sum);
        const __m256i even = _mm256_sub_epi32(_mm256_and_si256(bits, one), one);
        const __m256i toward =
            _mm256_or_si256(_mm256_srai_epi32(_mm256_castps_si256(_mm256_xor_ps(error, sum)), 31), one);
        const __m256i step = _mm256_and_si256(_mm256_and_si256(toward, even), _mm256_castps_si256(inexact));
        return rounded(_mm256_castsi256_ps(_mm256_add_epi32(bits, step)));
    }
    MANTISSA_MODE_LANES void hide(Sums& a) { asm volatile("" : "+x"(a)); }

  private:
    static constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    MANTISSA_MODE_LANES Sums rounded(Sums a) { return _mm256_cvtph_ps(_mm256_cvtps_ph(a, nearest)); }
};

struct Avx2IntegerSums {
    static constexpr int width = 8, word_bytes = 4;
    using Sum = std::uint32_t;
    using Sums = __m256i;

    MANTISSA_MODE_LANES Sums zero() { return _mm256_setzero_si256(); }
    MANTISSA_MODE_LANES Sums load(const void* from) {
        return _mm256_loadu_si256(static_cast<const __m256i*>(from));
    }
    MANTISSA_MODE_LANES void store(void* to, Sums sums) {
        _mm256_storeu_si256(static_cast<__m256i*>(to), sums);
    }
    MANTISSA_MODE_LANES void hide(Sums& a) { asm volatile("" : "+x"(a)); }

  protected:
    MANTISSA_MODE_LANES __m256i broadcast_word(const std::byte* word) {
        int bits;
        __builtin_memcpy(&bits, word, sizeof bits);
        return _mm256_set1_epi32(bits);
    }
};

/// Bytes as two vectors of 16-bit numbers, those at even and at odd places: their products and sums of two
/// (vpmaddwd) are exact, where those of bytes (vpmaddubsw) saturate.
struct Avx2S8Lanes : Avx2IntegerSums {
    static constexpr int depth_of_word = 4;
    static constexpr int height = 4, vectors = 2;  // 8 sums, 4 of columns, 2 of a row
    struct Words {
        __m256i even, odd;
    };

    MANTISSA_MODE_LANES Words load_words(const std::byte* panel) { return split(load(panel)); }
    MANTISSA_MODE_LANES Words broadcast(const std::byte* word) { return split(broadcast_word(word)); }
    MANTISSA_MODE_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        sums = _mm256_add_epi32(sums, _mm256_madd_epi16(row.even, column.even));
        return _mm256_add_epi32(sums, _mm256_madd_epi16(row.odd, column.odd));
    }
    using Avx2IntegerSums::hide;
    MANTISSA_MODE_LANES void hide(Words& a) { asm volatile("" : "+x"(a.even), "+x"(a.odd)); }

  private:
    MANTISSA_MODE_LANES Words split(__m256i bytes) {
        return {_mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8), _mm256_srai_epi16(bytes, 8)};
    }
};

/// Ones are counted by looking up each half of a byte.
struct Avx2B1Lanes : Avx2IntegerSums {
    static constexpr int depth_of_word = 32;
    using Words = __m256i;

    MANTISSA_MODE_LANES Words broadcast(const std::byte* word) { return broadcast_word(word); }
    MANTISSA_MODE_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        const __m256i bits = _mm256_xor_si256(row, column);
        const __m256i half = _mm256_set1_epi8(0x0f);
        const __m256i ones_of =
            _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
        const __m256i low = _mm256_shuffle_epi8(ones_of, _mm256_and_si256(bits, half));
        const __m256i high = _mm256_shuffle_epi8(ones_of, _mm256_and_si256(_mm256_srli_epi16(bits, 4), half));
        const __m256i of_bytes = _mm256_add_epi8(low, high);
        const __m256i of_pairs = _mm256_maddubs_epi16(of_bytes, _mm256_set1_epi8(1));
        return _mm256_add_epi32(sums, _mm256_madd_epi16(of_pairs, _mm256_set1_epi16(1)));
    }
};

}  // namespace
}  // namespace mantissa::on_cpu
