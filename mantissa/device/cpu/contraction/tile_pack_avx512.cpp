// GCC 12 takes the undefined upper operand inside its own AVX-512 intrinsics for a use of uninitialised
// memory (GCC bug 105593); the warnings have to be off where they are defined.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include "mantissa/device/cpu/contraction/tile_pack.h"

#include <immintrin.h>

#include <algorithm>

namespace mantissa::cpu {

namespace {

// A tile is 16 rows of 16 words of 32 bits, a word being two neighbours along the depth.
using Block = __m512i[16];

/// All ones in the first `count` of 32 bits, none for a negative count.
inline __mmask32 first(std::int64_t count) {
    if (count >= 32) return 0xffffffffU;
    return count <= 0 ? 0 : (1U << count) - 1;
}

/// Row i is line i, 32 deep; what the source lacks is 0 and not read.
inline void load_along(const std::uint16_t* source, std::int64_t stride, std::int64_t lines,
                       std::int64_t depth, Block& block) {
    const __mmask32 mask = first(depth);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
        block[i] = i < lines ? _mm512_maskz_loadu_epi16(mask, source + i * stride) : _mm512_setzero_si512();
}

/// Row i is a pair of stored rows, 2 i and 2 i + 1, of 16 lines.
inline void load_across(const std::uint16_t* source, std::int64_t stride, std::int64_t lines,
                        std::int64_t depth, Block& block) {
    const auto mask = static_cast<__mmask16>(first(std::min<std::int64_t>(lines, 16)));
    const auto row = [&](std::int64_t k) {
        const __m256i values =
            k < depth ? _mm256_maskz_loadu_epi16(mask, source + k * stride) : _mm256_setzero_si256();
        return _mm512_cvtepu16_epi32(values);
    };
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
        block[i] = _mm512_or_si512(row(2 * i), _mm512_slli_epi32(row(2 * i + 1), 16));
}

/// Words (i, j) become words (j, i).
inline void transpose(Block& block) {
    Block pairs, quads;
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        pairs[i] = _mm512_unpacklo_epi32(block[i], block[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_epi32(block[i], block[i + 1]);
    }
    // quads[4 g + c]: in each of its four lanes L, column 4 L + c of rows 4 g ... 4 g + 3.
#pragma GCC unroll 4
    for (int g = 0; g < 16; g += 4) {
        quads[g] = _mm512_unpacklo_epi64(pairs[g], pairs[g + 2]);
        quads[g + 1] = _mm512_unpackhi_epi64(pairs[g], pairs[g + 2]);
        quads[g + 2] = _mm512_unpacklo_epi64(pairs[g + 1], pairs[g + 3]);
        quads[g + 3] = _mm512_unpackhi_epi64(pairs[g + 1], pairs[g + 3]);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
        const __m512i even_low = _mm512_shuffle_i32x4(quads[c], quads[4 + c], 0x88);
        const __m512i odd_low = _mm512_shuffle_i32x4(quads[c], quads[4 + c], 0xdd);
        const __m512i even_high = _mm512_shuffle_i32x4(quads[8 + c], quads[12 + c], 0x88);
        const __m512i odd_high = _mm512_shuffle_i32x4(quads[8 + c], quads[12 + c], 0xdd);
        block[c] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
        block[4 + c] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
        block[8 + c] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
        block[12 + c] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
    }
}

enum class Words { as_loaded, transposed };

/// Two tiles of 16 lines for each 32 of the depth.
template <PanelSource Source, Words Order>
void pack(const PanelCopy& copy) {
    const auto* const source = static_cast<const std::uint16_t*>(copy.source);
    auto* to = static_cast<__m512i*>(copy.panel);
    for (std::int64_t k = 0; k < copy.depth; k += 32)
        for (std::int64_t line = 0; line < 32; line += 16, to += 16) {
            Block block;
            if constexpr (Source == PanelSource::along_depth)
                load_along(source + line * copy.stride + k, copy.stride, copy.lines - line, copy.depth - k,
                           block);
            else
                load_across(source + k * copy.stride + line, copy.stride, copy.lines - line, copy.depth - k,
                            block);
            if constexpr (Order == Words::transposed) transpose(block);
#pragma GCC unroll 16
            for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + i, block[i]);
        }
}

constexpr auto along = PanelSource::along_depth;
constexpr auto across = PanelSource::across_depth;

}  // namespace

// Rows of a tile of a are lines; rows of a tile of b are pairs along the depth.
PanelKernels tile_pack_a_avx512() {
    return {{{nullptr, pack<along, Words::as_loaded>}, {nullptr, pack<across, Words::transposed>}}};
}

PanelKernels tile_pack_b_avx512() {
    return {{{nullptr, pack<along, Words::transposed>}, {nullptr, pack<across, Words::as_loaded>}}};
}

}  // namespace mantissa::cpu
