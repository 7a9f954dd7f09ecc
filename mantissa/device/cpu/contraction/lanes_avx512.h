// Sixteen FP32 lanes of AVX-512: the twin of lanes_generic.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/device/cpu/intrinsics.h"

#define MANTISSA_PANEL_LANES [[gnu::always_inline]] static inline

namespace mantissa::inline v0::on_cpu {
namespace {

/// Shared by FP32 and BF16 operands: FP32 sums.
struct Avx512Sums {
    static constexpr int width = 16;
    using Sums = __m512;

    MANTISSA_PANEL_LANES Sums zero() { return _mm512_setzero_ps(); }
    MANTISSA_PANEL_LANES Sums add(Sums a, Sums b) { return _mm512_add_ps(a, b); }
    MANTISSA_PANEL_LANES Sums load(const float* from) { return _mm512_loadu_ps(from); }
    MANTISSA_PANEL_LANES void store(float* to, Sums a) { _mm512_storeu_ps(to, a); }
    MANTISSA_PANEL_LANES Sums load_first(const float* from, std::int64_t count) {
        return _mm512_maskz_loadu_ps(first(count), from);
    }
    MANTISSA_PANEL_LANES void store_first(float* to, Sums a, std::int64_t count) {
        _mm512_mask_storeu_ps(to, first(count), a);
    }
    MANTISSA_PANEL_LANES void stream(float* to, Sums a) { _mm512_stream_ps(to, a); }
    template <class Register>
    MANTISSA_PANEL_LANES void hide(Register& a) {
        asm volatile("" : "+v"(a));
    }

  private:
    MANTISSA_PANEL_LANES __mmask16 first(std::int64_t count) {
        return static_cast<__mmask16>(0xffff >> (16 - count));
    }
};

/// Words of several elements.
struct Avx512Words : Avx512Sums {
    static constexpr int rows_broadcast_by_fma = 0;
    using Words = __m512i;

    MANTISSA_PANEL_LANES Words load_words(const std::byte* panel) { return _mm512_loadu_si512(panel); }
    MANTISSA_PANEL_LANES Words broadcast(const std::byte* word) {
        std::int32_t bits;
        __builtin_memcpy(&bits, word, sizeof bits);
        return _mm512_set1_epi32(bits);
    }
};

struct Avx512Lanes : Avx512Sums {
    static constexpr int depth_of_word = 1;
    // Two of the eight rows: saves two of 35 instructions a step for four loads more, 15 loads in 12 cycles,
    // below two a cycle. Measured on a CPU with two units of 512 bits: +2 points of the peak, and +5 on a
    // core whose other hardware thread is busy. Four rows gain nothing more.
    static constexpr int rows_broadcast_by_fma = 2;
    using Words = __m512;

    MANTISSA_PANEL_LANES Words load_words(const std::byte* panel) { return _mm512_loadu_ps(panel); }
    MANTISSA_PANEL_LANES Words broadcast(const std::byte* word) {
        return _mm512_set1_ps(*reinterpret_cast<const float*>(word));
    }
    MANTISSA_PANEL_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        return _mm512_fmadd_ps(row, column, sums);
    }
    MANTISSA_PANEL_LANES Sums multiply_add_broadcast(const std::byte* row, Words column, Sums sums) {
        asm("vfmadd231ps %2%{1to16%}, %1, %0"
            : "+v"(sums)
            : "v"(column), "m"(*reinterpret_cast<const float*>(row)));
        return sums;
    }
};

}  // namespace
}  // namespace mantissa::on_cpu
