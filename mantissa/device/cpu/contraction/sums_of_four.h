// The sums of four vectors of AVX-512 at once: thirteen operations, where a vector alone takes nine. Included
// by sources of that level; in an anonymous namespace, so that each keeps its own copy.
#pragma once

#include <cstdint>

#include "mantissa/device/cpu/intrinsics.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// In the order of the operands; each sum is the same beside any others.
[[gnu::always_inline]] inline __m128i sums_of_four(__m512i a, __m512i b, __m512i c, __m512i d) {
    const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    const __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

[[gnu::always_inline]] inline __m128 sums_of_four(__m512 a, __m512 b, __m512 c, __m512 d) {
    const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512d ab_pairs = _mm512_castps_pd(ab), cd_pairs = _mm512_castps_pd(cd);
    const __m512 all = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab_pairs, cd_pairs)),
                                     _mm512_castpd_ps(_mm512_unpackhi_pd(ab_pairs, cd_pairs)));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

/// Stores the sum of each of some vectors, `stride` numbers apart; those of whole numbers as their bits.
template <int Count, class Vector>
[[gnu::always_inline]] inline void store_sums(const Vector (&of)[Count], float* to, std::int64_t stride) {
    constexpr Vector none = {};
#pragma GCC unroll 2
    for (int first = 0; first < Count; first += 4) {
        alignas(16) float four[4];
        if constexpr (Count < 4) {
            const auto sums = sums_of_four(of[0], none, none, none);
            __builtin_memcpy(four, &sums, sizeof four);
        } else {
            const auto sums = sums_of_four(of[first], of[first + 1], of[first + 2], of[first + 3]);
            __builtin_memcpy(four, &sums, sizeof four);
        }
        for (int r = 0; r < 4 && r < Count; ++r) to[(first + r) * stride] = four[r];
    }
}

}  // namespace

}  // namespace mantissa::on_cpu
