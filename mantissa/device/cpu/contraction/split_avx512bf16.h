// Numbers in two parts of BF16, by the vectors that round to it: convert_of_level.cpp defines the parts.
#pragma once

#include <cstdint>

#include "mantissa/device/cpu/intrinsics.h"

namespace mantissa::inline v0::on_cpu {
namespace {

/// 32 numbers, as 32 first parts and 32 second ones.
struct Parts {
    __m512i hi, lo;
};

/// The parts of ordinary numbers. Subnormal numbers are flushed.
inline Parts parts_of(__m512 first, __m512 second) {
    const auto rounded = [](__m512 a, __m512 b) { return (__m512i)_mm512_cvtne2ps_pbh(b, a); };
    const auto wide = [](__m256i words) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
    };
    const __m512i hi = rounded(first, second);
    const __m512 rest_of_first = _mm512_sub_ps(first, wide(_mm512_castsi512_si256(hi)));
    const __m512 rest_of_second = _mm512_sub_ps(second, wide(_mm512_extracti64x4_epi64(hi, 1)));
    return {hi, rounded(rest_of_first, rest_of_second)};
}

/// Writes the parts of up to 32 ordinary numbers, chosen by the mask.
inline void write_split(__m512 first, __m512 second, __mmask32 mask, std::uint16_t* hi, std::uint16_t* lo) {
    const Parts parts = parts_of(first, second);
    _mm512_mask_storeu_epi16(hi, mask, parts.hi);
    _mm512_mask_storeu_epi16(lo, mask, parts.lo);
}

/// The largest magnitude of numbers, by their bits.
class Largest {
  public:
    void add(__m512 numbers) {
        const __m512i magnitude =
            _mm512_and_si512(_mm512_castps_si512(numbers), _mm512_set1_epi32(0x7fffffff));
        largest_ = _mm512_max_epu32(largest_, magnitude);
    }
    /// Whether all are ordinary: none is infinite, a NaN, or so large that its first part needs its own rule.
    bool is_ordinary() const { return _mm512_reduce_max_epu32(largest_) < 0x7f7e8000u; }

  private:
    __m512i largest_ = _mm512_setzero_si512();
};

/// The first `count` of 32 lanes.
inline __mmask32 first_lanes(std::int64_t count) {
    return count >= 32 ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
}

/// Writes the parts of numbers; false where one is infinite, a NaN, or so large that its first part needs a
/// rule of its own.
inline bool split_ordinary(const float* x, std::int64_t count, std::uint16_t* hi, std::uint16_t* lo) {
    Largest largest;
    for (std::int64_t i = 0; i < count; i += 32) {
        const __mmask32 mask = first_lanes(count - i);
        const __m512 first = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), x + i);
        const __m512 second = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), x + i + 16);
        largest.add(first);
        largest.add(second);
        write_split(first, second, mask, hi + i, lo + i);
    }
    return largest.is_ordinary();
}

inline bool split_ordinary(const std::uint16_t* x, std::int64_t count, std::uint16_t* hi, std::uint16_t* lo) {
    const __m512i magnitude = _mm512_set1_epi16(0x7fff), infinity = _mm512_set1_epi16(0x7c00);
    __m512i largest = _mm512_setzero_si512();
    for (std::int64_t i = 0; i < count; i += 32) {
        const __mmask32 mask = first_lanes(count - i);
        const __m512i halves = _mm512_maskz_loadu_epi16(mask, x + i);
        largest = _mm512_max_epu16(largest, _mm512_and_si512(halves, magnitude));
        write_split(_mm512_cvtph_ps(_mm512_castsi512_si256(halves)),
                    _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1)), mask, hi + i, lo + i);
    }
    return _mm512_cmpge_epu16_mask(largest, infinity) == 0;
}

}  // namespace
}  // namespace mantissa::on_cpu
