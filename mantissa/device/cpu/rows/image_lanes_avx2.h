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
};

}  // namespace
}  // namespace mantissa::on_cpu
