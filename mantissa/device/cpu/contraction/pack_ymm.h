// Packing an operand into panels with 256-bit vectors. For the sources compiled for AVX2 or more, and only
// for them: everything is in an anonymous namespace, so that each keeps its own copy, compiled for its own
// level.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/kernels.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// All ones in the first `count` of eight lanes.
inline __m256i first_lanes(std::int64_t count) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lanes);
}

// The sources of the numbers of a panel: eight neighbours of a stored row; first: `count` < 8 of them, and
// zeros; six: as many, where panels have six lines. Nothing else is read.

struct Floats {
    using Element = float;
    static __m256 eight(const float* from) { return _mm256_loadu_ps(from); }
    static __m256 first(const float* from, std::int64_t count) {
        return _mm256_maskload_ps(from, first_lanes(count));
    }
    static __m256 six(const float* from) {
        const __m128 last = _mm_loadl_pi(_mm_setzero_ps(), reinterpret_cast<const __m64*>(from + 4));
        return _mm256_set_m128(last, _mm_loadu_ps(from));
    }
};

inline __m128i eight_halves(const std::uint16_t* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
inline __m128i first_halves(const std::uint16_t* from, std::int64_t count) {
    alignas(16) std::uint16_t eight[8] = {};
    for (std::int64_t i = 0; i < count; ++i) eight[i] = from[i];
    return eight_halves(eight);
}

/// BF16 that becomes FP32.
struct WidenedBf16 {
    using Element = std::uint16_t;
    static __m256 eight(const std::uint16_t* from) { return widened(eight_halves(from)); }
    static __m256 first(const std::uint16_t* from, std::int64_t count) {
        return widened(first_halves(from, count));
    }
    static __m256 six(const std::uint16_t* from) {
        const __m128i four = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
        return widened(_mm_unpacklo_epi64(four, _mm_loadu_si32(from + 4)));
    }

  private:
    static __m256 widened(__m128i bf16) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
    }
};

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

/// Writes eight lanes of a panel, or the six or four that are left of its lines. Not by a masked store, which
/// is microcode on AMD's processors.
template <int Lanes>
inline void store_lanes(float* to, __m256 value) {
    static_assert(Lanes >= 8 || Lanes == 6 || Lanes == 4);
    if constexpr (Lanes >= 8)
        _mm256_storeu_ps(to, value);
    else
        _mm_storeu_ps(to, _mm256_castps256_ps128(value));
    if constexpr (Lanes == 6)
        _mm_storel_pi(reinterpret_cast<__m64*>(to + 4), _mm256_extractf128_ps(value, 1));
}

/// Lines First ... First + 7 of a panel of `Size`, from a source whose lines run along the depth.
template <class Numbers, int Size, int First>
void pack_eight_lines(const PanelCopy& copy) {
    const auto* const source =
        static_cast<const typename Numbers::Element*>(copy.source) + First * copy.stride;
    const std::int64_t lines = copy.lines - First;
    auto* to = static_cast<float*>(copy.panel) + First;
    __m256 rows[8];
    for (std::int64_t k = 0; k < copy.depth; k += 8, to += 8 * Size) {
        const std::int64_t left = copy.depth - k;
        const bool whole = left >= 8;
        for (int i = 0; i < 8; ++i) {
            if (First + i >= Size || i >= lines)
                rows[i] = _mm256_setzero_ps();
            else
                rows[i] = whole ? Numbers::eight(source + i * copy.stride + k)
                                : Numbers::first(source + i * copy.stride + k, left);
        }
        transpose8(rows);
        if (whole)
            for (int i = 0; i < 8; ++i) store_lanes<Size - First>(to + i * Size, rows[i]);
        else
            for (int i = 0; i < left; ++i) store_lanes<Size - First>(to + i * Size, rows[i]);
    }
}

template <class Numbers, int Size, int First = 0>
void pack_along_depth(const PanelCopy& copy) {
    pack_eight_lines<Numbers, Size, First>(copy);
    if constexpr (First + 8 < Size) pack_along_depth<Numbers, Size, First + 8>(copy);
}

template <class Numbers, int Size>
void pack_across_depth(const PanelCopy& copy) {
    constexpr int lanes = Size < 8 ? Size : 8;
    static_assert(Size % lanes == 0);
    const auto* source = static_cast<const typename Numbers::Element*>(copy.source);
    auto* to = static_cast<float*>(copy.panel);
    for (std::int64_t k = 0; k < copy.depth; ++k, to += Size) {
        const auto* const row = source + k * copy.stride;
        for (int line = 0; line < Size; line += lanes) {
            const std::int64_t left = copy.lines - line;
            __m256 value = _mm256_setzero_ps();
            if constexpr (lanes == 8) {
                if (left >= 8) value = Numbers::eight(row + line);
            } else {
                if (left >= lanes) value = Numbers::six(row + line);
            }
            if (left > 0 && left < lanes) value = Numbers::first(row + line, left);
            store_lanes<lanes>(to + line, value);
        }
    }
}

/// Rows that lie across the depth are packed so many at a time: a panel then gets whole lines of cache, or
/// nearly, before the next does.
constexpr std::int64_t rows_across = 16;

/// Rows `begin` ... `end` - 1, in the order of memory.
template <class Element>
inline void ask_for_rows(const PanelCopy& copy, std::int64_t begin, std::int64_t end) {
    const auto* const source = static_cast<const Element*>(copy.source);
    for (std::int64_t row = begin; row < std::min(end, copy.depth + copy.rows_ahead); ++row)
        for (std::int64_t line = 0; line < copy.lines; line += 64 / sizeof(Element))
            _mm_prefetch(source + row * copy.stride + line, _MM_HINT_T0);
}

/// Packs one panel after another. Rows across the depth are asked for while earlier rows are packed.
template <PanelKernel One, class Element, int Size, PanelSource Source>
void pack_panels(const PanelCopy& copy) {
    constexpr bool along = Source == PanelSource::along_depth;
    const std::int64_t slice = along ? copy.depth : rows_across;
    const std::int64_t panels = ceil_div(copy.lines, Size);
    const auto* const source = static_cast<const Element*>(copy.source);
    for (std::int64_t k = 0; k < copy.depth; k += slice)
        for (std::int64_t panel = 0; panel < panels; ++panel) {
            const std::int64_t line = panel * Size;
            if constexpr (!along)
                ask_for_rows<Element>(copy, k + slice + slice * panel / panels,
                                      k + slice + slice * (panel + 1) / panels);
            PanelCopy one = copy;
            one.source = source + (along ? line * copy.stride + k : k * copy.stride + line);
            one.lines = std::min<std::int64_t>(Size, copy.lines - line);
            one.depth = std::min(slice, copy.depth - k);
            one.panel = static_cast<std::byte*>(copy.panel) + panel * copy.panel_bytes + k * Size * 4;
            One(one);
        }
}

/// FP32 panels, of FP32 or BF16.
template <int Size>
PanelKernels widened_panels_ymm() {
    constexpr auto along = PanelSource::along_depth, across = PanelSource::across_depth;
    using Half = std::uint16_t;
    return {{{pack_panels<pack_along_depth<Floats, Size>, float, Size, along>,
              pack_panels<pack_along_depth<WidenedBf16, Size>, Half, Size, along>},
             {pack_panels<pack_across_depth<Floats, Size>, float, Size, across>,
              pack_panels<pack_across_depth<WidenedBf16, Size>, Half, Size, across>}}};
}

}  // namespace

}  // namespace mantissa::on_cpu
