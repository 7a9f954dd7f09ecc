// The transpose of 16 x 16 two-byte elements in AVX2, which AVX-512 uses too. Included by the lanes of both.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace mantissa::inline v0::on_cpu {
namespace {

/// Within each 128-bit lane, rows become columns: of 8 rows of 8.
MANTISSA_LANES void transpose8(__m256i (&row)[8]) {
    __m256i pair[8], quad[8];
    for (int i = 0; i < 8; i += 2) {
        pair[i] = _mm256_unpacklo_epi16(row[i], row[i + 1]);
        pair[i + 1] = _mm256_unpackhi_epi16(row[i], row[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        quad[i] = _mm256_unpacklo_epi32(pair[i], pair[i + 2]);
        quad[i + 1] = _mm256_unpackhi_epi32(pair[i], pair[i + 2]);
        quad[i + 2] = _mm256_unpacklo_epi32(pair[i + 1], pair[i + 3]);
        quad[i + 3] = _mm256_unpackhi_epi32(pair[i + 1], pair[i + 3]);
    }
    for (int i = 0; i < 4; ++i) {
        row[2 * i] = _mm256_unpacklo_epi64(quad[i], quad[4 + i]);
        row[2 * i + 1] = _mm256_unpackhi_epi64(quad[i], quad[4 + i]);
    }
}

MANTISSA_LANES void transpose16_halves(const std::uint16_t* source, std::int64_t source_stride,
                                       std::uint16_t* target, std::int64_t target_stride) {
    __m256i upper[8], lower[8];
    for (int i = 0; i < 8; ++i) {
        upper[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + i * source_stride));
        lower[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + (8 + i) * source_stride));
    }
    transpose8(upper);
    transpose8(lower);
    for (int i = 0; i < 8; ++i) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + i * target_stride),
                            _mm256_permute2x128_si256(upper[i], lower[i], 0x20));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + (8 + i) * target_stride),
                            _mm256_permute2x128_si256(upper[i], lower[i], 0x31));
    }
}

}  // namespace
}  // namespace mantissa::on_cpu
