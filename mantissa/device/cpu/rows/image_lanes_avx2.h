// AVX2 for kernels over images beside lanes_avx2.h: comparisons of maxima, and bytes.
#pragma once

#include "mantissa/device/cpu/rows/lanes_avx2.h"

namespace mantissa::inline v0::on_cpu {
namespace {

struct ImageLanes {
    /// Where x takes the place of a maximum: it is larger, or the first NaN.
    MANTISSA_LANES Lanes::Mask wins(Lanes::Float x, Lanes::Float maximum) {
        const auto half = [](__m256 a, __m256 b) {
            return _mm256_and_ps(_mm256_cmp_ps(b, b, _CMP_ORD_Q), _mm256_cmp_ps(a, b, _CMP_NLE_UQ));
        };
        return {half(x.low, maximum.low), half(x.high, maximum.high)};
    }
    /// A mask of the `count` bytes that are `value`; of the other lanes nothing is said.
    MANTISSA_LANES Lanes::Mask are(const std::uint8_t* from, int count, std::uint8_t value) {
        alignas(16) unsigned char bytes[16] = {};
        if (count == 16)
            __builtin_memcpy(bytes, from, 16);
        else
            __builtin_memcpy(bytes, from, static_cast<unsigned>(count));
        const __m128i equal = _mm_cmpeq_epi8(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes)),
                                             _mm_set1_epi8(static_cast<char>(value)));
        return {_mm256_castsi256_ps(_mm256_cvtepi8_epi32(equal)),
                _mm256_castsi256_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(equal, 8)))};
    }
    /// `count` whole numbers from 0 to 255 as bytes.
    MANTISSA_LANES void store(std::uint8_t* to, Lanes::Float a, int count) {
        const auto words = [](__m256 eight) {
            const __m256i whole = _mm256_cvtps_epi32(eight);
            return _mm_packus_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
        };
        alignas(16) unsigned char bytes[16];
        _mm_store_si128(reinterpret_cast<__m128i*>(bytes), _mm_packus_epi16(words(a.low), words(a.high)));
        if (count == 16)
            __builtin_memcpy(to, bytes, 16);
        else
            __builtin_memcpy(to, bytes, static_cast<unsigned>(count));
    }
    /// lanes[index].
    MANTISSA_LANES Lanes::Float permuted(Lanes::Float lanes, const std::int32_t (&index)[16]) {
        const auto half = [&](const std::int32_t* from) {
            const __m256i at = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
            const __m256 is_high = _mm256_castsi256_ps(_mm256_cmpgt_epi32(at, _mm256_set1_epi32(7)));
            return _mm256_blendv_ps(_mm256_permutevar8x32_ps(lanes.low, at),
                                    _mm256_permutevar8x32_ps(lanes.high, at), is_high);
        };
        return {half(index), half(index + 8)};
    }
};

/// A vector of FP32 as wide as registers are. Long sums keep `columns` of them.
struct Vector {
    using Float = __m256;
    static constexpr int width = 8, columns = 7;
    static constexpr bool twice = false, pairs = false, masks = false;
    MANTISSA_LANES Float zero() { return _mm256_setzero_ps(); }
    MANTISSA_LANES Float load(const float* from) { return _mm256_loadu_ps(from); }
    /// No load is of less than a vector.
    struct Extent {};
    MANTISSA_LANES Extent extent(int) { return {}; }
    template <class T>
    MANTISSA_LANES Float load_widened(const T* from, Extent) {
        Float a = Lanes::load_half(from);
        asm("" : "+x"(a));
        return a;
    }
    MANTISSA_LANES void store(float* to, Float a) { _mm256_storeu_ps(to, a); }
    /// For what is used more than once: the compiler would load it as often.
    MANTISSA_LANES Float load_once(const float* from) {
        Float a = load(from);
        asm("" : "+x"(a));
        return a;
    }
    MANTISSA_LANES Float load_broadcast(const float* from) { return _mm256_set1_ps(*from); }
    /// Never called: a block has several vectors.
    MANTISSA_LANES Float load_permuted(const float* from, const std::int32_t*) { return load(from); }
    MANTISSA_LANES Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
    MANTISSA_LANES Float multiply_add(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
};

}  // namespace
}  // namespace mantissa::on_cpu
