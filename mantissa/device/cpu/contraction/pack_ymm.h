// Packing an operand into panels with 256-bit vectors. For the sources compiled for AVX2 or more, and only
// for them: everything is in an anonymous namespace, so that each keeps its own copy, compiled for its own
// level.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "mantissa/device/cpu/contraction/kernels.h"

namespace mantissa::cpu {

namespace {

/// All ones in the first `count` of eight lanes.
inline __m256i first_lanes(std::int64_t count) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lanes);
}

inline __m256 load8(const float* from) { return _mm256_loadu_ps(from); }
inline __m256 load8(const std::uint16_t* bf16) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bf16));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

/// The first `count` < 8 elements and zeros; reads nothing else.
inline __m256 load_first(const float* from, std::int64_t count) {
    return _mm256_maskload_ps(from, first_lanes(count));
}
inline __m256 load_first(const std::uint16_t* bf16, std::int64_t count) {
    alignas(16) std::uint16_t eight[8] = {};
    for (std::int64_t i = 0; i < count; ++i) eight[i] = bf16[i];
    return load8(eight);
}

/// rows[i][j] becomes rows[j][i].
inline void transpose8(__m256 (&rows)[8]) {
    __m256 pairs[8], quads[8];
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        quads[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
        quads[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
        quads[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
        quads[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
        rows[i] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
        rows[i + 4] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
    }
}

/// Writes eight lanes of a panel, or the `Lanes` < 8 that are left of its lines.
template <int Lanes>
inline void store_lanes(float* to, __m256 value) {
    if constexpr (Lanes >= 8)
        _mm256_storeu_ps(to, value);
    else
        _mm256_maskstore_ps(to, first_lanes(Lanes), value);
}

/// Lines First ... First + 7 of a panel of `Size`, from a source whose lines run along the depth.
template <class Element, int Size, int First>
void pack_eight_lines(const PanelCopy& copy) {
    const auto* const source = static_cast<const Element*>(copy.source) + First * copy.stride;
    const std::int64_t lines = copy.lines - First;
    __m256 rows[8];
    for (std::int64_t k = 0; k < copy.depth; k += 8) {
        const std::int64_t left = copy.depth - k;
        for (int i = 0; i < 8; ++i) {
            if (i >= lines)
                rows[i] = _mm256_setzero_ps();
            else
                rows[i] = left >= 8 ? load8(source + i * copy.stride + k)
                                    : load_first(source + i * copy.stride + k, left);
        }
        transpose8(rows);
        float* const to = static_cast<float*>(copy.panel) + k * Size + First;
        if (left >= 8)
            for (int i = 0; i < 8; ++i) store_lanes<Size - First>(to + i * Size, rows[i]);
        else
            for (int i = 0; i < left; ++i) store_lanes<Size - First>(to + i * Size, rows[i]);
    }
}

template <class Element, int Size, int First = 0>
void pack_along_depth(const PanelCopy& copy) {
    pack_eight_lines<Element, Size, First>(copy);
    if constexpr (First + 8 < Size) pack_along_depth<Element, Size, First + 8>(copy);
}

template <class Element, int Size>
void pack_across_depth(const PanelCopy& copy) {
    const auto* source = static_cast<const Element*>(copy.source);
    auto* to = static_cast<float*>(copy.panel);
    for (std::int64_t k = 0; k < copy.depth; ++k, source += copy.stride, to += Size)
        for (int line = 0; line < Size; line += 8) {
            const std::int64_t left = copy.lines - line;
            const __m256 value = left >= 8  ? load8(source + line)
                                 : left > 0 ? load_first(source + line, left)
                                            : _mm256_setzero_ps();
            if (Size - line >= 8)
                _mm256_storeu_ps(to + line, value);
            else
                _mm256_maskstore_ps(to + line, first_lanes(Size - line), value);
        }
}

template <int Size>
PanelKernels panel_kernels() {
    return {{{pack_along_depth<float, Size>, pack_along_depth<std::uint16_t, Size>},
             {pack_across_depth<float, Size>, pack_across_depth<std::uint16_t, Size>}}};
}

}  // namespace

}  // namespace mantissa::cpu
