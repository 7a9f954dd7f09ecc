// Lanes for AVX-512: FP64, FP16 as FP32, and what the whole numbers of lanes_avx512vnni.h and
// peak_loops_avx512vpopcntdq.cpp have in common. Twins of those in lanes_generic.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/device/cpu/intrinsics.h"

#define MANTISSA_MODE_LANES [[gnu::always_inline]] static inline

namespace mantissa::inline v0::on_cpu {
namespace {

struct Avx512F64Lanes {
    static constexpr int width = 8, depth_of_word = 1;
    using Sums = __m512d;
    using Words = __m512d;

    MANTISSA_MODE_LANES Sums zero() { return _mm512_setzero_pd(); }
    MANTISSA_MODE_LANES Words broadcast(const std::byte* word) {
        return _mm512_set1_pd(*reinterpret_cast<const double*>(word));
    }
    MANTISSA_MODE_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        return _mm512_fmadd_pd(row, column, sums);
    }
    MANTISSA_MODE_LANES void hide(Sums& a) { asm volatile("" : "+v"(a)); }
};

/// FP16 numbers as FP32. GenericF16Lanes says why an inexact sum is made odd before it is rounded to FP16; of
/// the sum rounded down and rounded up, one is.
struct Avx512F16Lanes {
    static constexpr int width = 16, depth_of_word = 1;
    using Sums = __m512;
    using Words = __m512;

    MANTISSA_MODE_LANES Sums zero() { return _mm512_setzero_ps(); }
    MANTISSA_MODE_LANES Words broadcast(const std::byte* word) {
        return _mm512_set1_ps(*reinterpret_cast<const float*>(word));
    }
    MANTISSA_MODE_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        const __m512 down =
            _mm512_fmadd_round_ps(row, column, sums, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
        const __m512 up = _mm512_fmadd_round_ps(row, column, sums, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
        const __mmask16 odd = _mm512_test_epi32_mask(_mm512_castps_si512(down), _mm512_set1_epi32(1));
        return rounded(_mm512_mask_mov_ps(up, odd, down));
    }
    MANTISSA_MODE_LANES void hide(Sums& a) { asm volatile("" : "+v"(a)); }

  private:
    // Masks of all lanes, since GCC 12 warns of the undefined operand inside the intrinsics without one.
    MANTISSA_MODE_LANES __m256i halves(Sums a) {
        return _mm512_maskz_cvtps_ph(0xffff, a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
    MANTISSA_MODE_LANES Sums widened(__m256i halves) { return _mm512_maskz_cvtph_ps(0xffff, halves); }
    MANTISSA_MODE_LANES Sums rounded(Sums a) { return widened(halves(a)); }
};

struct Avx512IntegerLanes {
    static constexpr int height = 8, vectors = 3;  // 24 sums, 3 columns and a row of 32 registers
    static constexpr int width = 16, word_bytes = 4;
    using Sum = std::uint32_t;
    using Sums = __m512i;
    using Words = __m512i;

    MANTISSA_MODE_LANES Sums zero() { return _mm512_setzero_si512(); }
    MANTISSA_MODE_LANES Sums load(const void* from) { return _mm512_loadu_si512(from); }
    MANTISSA_MODE_LANES void store(void* to, Sums sums) { _mm512_storeu_si512(to, sums); }
    MANTISSA_MODE_LANES Words load_words(const std::byte* panel) { return load(panel); }
    MANTISSA_MODE_LANES Words broadcast(const std::byte* word) {
        int bits;
        __builtin_memcpy(&bits, word, sizeof bits);
        return _mm512_set1_epi32(bits);
    }
    MANTISSA_MODE_LANES void hide(Sums& a) { asm volatile("" : "+v"(a)); }
};

}  // namespace
}  // namespace mantissa::on_cpu
