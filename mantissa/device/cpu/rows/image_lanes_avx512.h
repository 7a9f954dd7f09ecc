// AVX-512 for kernels over images beside lanes_avx512.h: comparisons of maxima, and bytes.
#pragma once

#include "mantissa/device/cpu/rows/lanes_avx512.h"

namespace mantissa::inline v0::on_cpu {
namespace {

struct ImageLanes {
    /// Where x takes the place of a maximum: it is larger, or the first NaN.
    MANTISSA_LANES Lanes::Mask wins(Lanes::Float x, Lanes::Float maximum) {
        const Lanes::Mask number = _mm512_cmp_ps_mask(maximum, maximum, _CMP_ORD_Q);
        return _mm512_mask_cmp_ps_mask(number, x, maximum, _CMP_NLE_UQ);
    }
    /// A mask of the `count` bytes that are `value`; the other lanes are not set.
    MANTISSA_LANES Lanes::Mask are(const std::uint8_t* from, int count, std::uint8_t value) {
        const __mmask16 part = Lanes::first(count);
        return _mm_mask_cmpeq_epi8_mask(part, _mm_maskz_loadu_epi8(part, from),
                                        _mm_set1_epi8(static_cast<char>(value)));
    }
    /// `count` whole numbers from 0 to 255 as bytes.
    MANTISSA_LANES void store(std::uint8_t* to, Lanes::Float a, int count) {
        _mm_mask_storeu_epi8(to, Lanes::first(count), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a)));
    }
    /// lanes[index].
    MANTISSA_LANES Lanes::Float permuted(Lanes::Float lanes, const std::int32_t (&index)[16]) {
        return _mm512_permutexvar_ps(_mm512_loadu_si512(index), lanes);
    }
};

/// A vector of FP32 as wide as registers are. Long sums keep `columns` of them, or twice as many.
struct Vector {
    using Float = __m512;
    static constexpr int width = 16, columns = 7;
    static constexpr bool twice = true, masks = true;
#ifdef __AVX512BF16__
    static constexpr bool pairs = true;
    /// c and the products of two BF16 in each lane.
    MANTISSA_LANES Float add_pairs(Float a, Float b, Float c) {
        return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
    }
#else
    static constexpr bool pairs = false;
#endif
    /// Numbers of BF16, as FP32, become pairs: of a below, of b above.
    MANTISSA_LANES Float pair(Float a, Float b) {
        const __m512i below = _mm512_srli_epi32(_mm512_castps_si512(a), 16);
        return _mm512_castsi512_ps(_mm512_mask_blend_epi16(0xAAAAAAAA, below, _mm512_castps_si512(b)));
    }
    /// The lower number of each pair, with 0 above it.
    MANTISSA_LANES Float lower(Float pairs) {
        return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(pairs), _mm512_set1_epi32(0xffff)));
    }
    MANTISSA_LANES Float zero() { return _mm512_setzero_ps(); }
    MANTISSA_LANES Float load(const float* from) { return _mm512_loadu_ps(from); }
    using Extent = Lanes::Mask;
    /// The compiler would make the mask anew for each load.
    MANTISSA_LANES Extent extent(int count) {
        Extent mask = Lanes::first(count);
        asm("" : "+k"(mask));
        return mask;
    }
    template <class T>
    MANTISSA_LANES Float load_widened(const T* from, Extent mask) {
        Float a = Lanes::load_masked(from, mask);
        asm("" : "+v"(a));
        return a;
    }
    MANTISSA_LANES void store(float* to, Float a) { _mm512_storeu_ps(to, a); }
    /// For what is used more than once: the compiler would load it as often.
    MANTISSA_LANES Float load_once(const float* from) {
        Float a = load(from);
        asm("" : "+v"(a));
        return a;
    }
    MANTISSA_LANES Float load_broadcast(const float* from) {
        Float a = _mm512_set1_ps(*from);
        asm("" : "+v"(a));
        return a;
    }
    MANTISSA_LANES Float load_permuted(const float* from, const std::int32_t* index) {
        Float a = _mm512_permutexvar_ps(_mm512_loadu_si512(index), load(from));
        asm("" : "+v"(a));
        return a;
    }
    MANTISSA_LANES Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
    MANTISSA_LANES Float multiply_add(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
};

}  // namespace
}  // namespace mantissa::on_cpu
