// Eight FP32 lanes of AVX2: the twin of lanes_generic.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define MANTISSA_PANEL_LANES [[gnu::always_inline]] static inline

namespace mantissa::inline v0::on_cpu {
namespace {

struct Avx2Lanes {
    static constexpr int width = 8;
    static constexpr int depth_of_word = 1;
    static constexpr int rows_broadcast_by_fma = 0;
    using Sums = __m256;
    using Words = __m256;

    MANTISSA_PANEL_LANES Sums zero() { return _mm256_setzero_ps(); }
    MANTISSA_PANEL_LANES Words load_words(const std::byte* panel) { return load(as_floats(panel)); }
    MANTISSA_PANEL_LANES Words broadcast(const std::byte* word) {
        return _mm256_broadcast_ss(as_floats(word));
    }
    // The form that adds to its own register, demanded outright. Left the choice, GCC 12 puts results into
    // the registers of factors, runs out of 16 and spills two sums of a tile of 6 x 16. 0.97 of the peak in
    // cache for 0.90.
    MANTISSA_PANEL_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        asm("vfmadd231ps %2, %1, %0" : "+x"(sums) : "x"(row), "x"(column));
        return sums;
    }

    MANTISSA_PANEL_LANES Sums add(Sums a, Sums b) { return _mm256_add_ps(a, b); }
    MANTISSA_PANEL_LANES Sums load(const float* from) { return _mm256_loadu_ps(from); }
    MANTISSA_PANEL_LANES void store(float* to, Sums a) { _mm256_storeu_ps(to, a); }
    MANTISSA_PANEL_LANES Sums load_first(const float* from, std::int64_t count) {
        return _mm256_maskload_ps(from, first(count));
    }
    MANTISSA_PANEL_LANES void store_first(float* to, Sums a, std::int64_t count) {
        _mm256_maskstore_ps(to, first(count), a);
    }
    MANTISSA_PANEL_LANES void stream(float* to, Sums a) { _mm256_stream_ps(to, a); }
    template <class Register>
    MANTISSA_PANEL_LANES void hide(Register& a) {
        asm volatile("" : "+x"(a));
    }

  private:
    MANTISSA_PANEL_LANES const float* as_floats(const std::byte* words) {
        return reinterpret_cast<const float*>(words);
    }
    MANTISSA_PANEL_LANES __m256i first(std::int64_t count) {
        const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lanes);
    }
};

/// Bytes as two vectors of 16-bit numbers, those at even and at odd places: their products and sums of two
/// (vpmaddwd) are exact, where those of bytes (vpmaddubsw) saturate.
struct Avx2S8Lanes : Avx2Lanes {
    struct Words {
        __m256i even, odd;
    };

    MANTISSA_PANEL_LANES Words load_words(const std::byte* panel) {
        return split(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel)));
    }
    MANTISSA_PANEL_LANES Words broadcast(const std::byte* word) {
        return split(_mm256_castps_si256(Avx2Lanes::broadcast(word)));
    }
    // In the order of the depth, said outright: left the choice, GCC 12 forms products of several steps
    // first, runs out of registers and spills them, which takes a tenth longer.
    MANTISSA_PANEL_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        sums = add(sums, _mm256_castsi256_ps(_mm256_madd_epi16(row.even, column.even)));
        asm("" : "+x"(sums));
        sums = add(sums, _mm256_castsi256_ps(_mm256_madd_epi16(row.odd, column.odd)));
        asm("" : "+x"(sums));
        return sums;
    }
    MANTISSA_PANEL_LANES Sums add(Sums a, Sums b) {
        return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
    }
    using Avx2Lanes::hide;
    MANTISSA_PANEL_LANES void hide(Words& a) { asm volatile("" : "+x"(a.even), "+x"(a.odd)); }

  private:
    MANTISSA_PANEL_LANES Words split(__m256i bytes) {
        return {_mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8), _mm256_srai_epi16(bytes, 8)};
    }
};

}  // namespace
}  // namespace mantissa::on_cpu
