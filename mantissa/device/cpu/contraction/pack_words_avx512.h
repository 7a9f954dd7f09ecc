// The tools of pack_avx512.cpp and pack_split_avx512bf16.cpp: words of a panel from a source, and
// transpositions of them in registers. Everything is in an anonymous namespace, so that each of the sources
// keeps its own copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/intrinsics.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// All ones in the first `count` of 32 bits, none for a negative count.
inline __mmask32 first(std::int64_t count) {
    if (count >= 32) return 0xffffffffU;
    return count <= 0 ? 0 : (1U << count) - 1;
}

inline __m128i eight_halves(const std::uint16_t* from, bool whole, std::int64_t count) {
    return whole ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(from))
                 : _mm_maskz_loadu_epi16(static_cast<__mmask8>(first(count)), from);
}
inline __m256i sixteen_halves(const std::uint16_t* from, bool whole, std::int64_t count) {
    return whole ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))
                 : _mm256_maskz_loadu_epi16(static_cast<__mmask16>(first(count)), from);
}

// The sources of the words of a panel, 32 bits each. depth: elements along the depth in a word. along:
// sixteen words of one line that runs along the depth and has `count` elements. across: one word of each of
// `count` neighbouring lines, sixteen at most, from at most `left` stored rows. Where not `Whole`, elements
// that the source lacks are 0 and not read.

struct Floats {
    using Element = float;
    static constexpr int depth = 1;
    template <bool Whole>
    static __m512i along(const float* from, std::int64_t count) {
        return Whole ? _mm512_loadu_si512(from)
                     : _mm512_maskz_loadu_epi32(static_cast<__mmask16>(first(count)), from);
    }
    template <bool Whole>
    static __m512i across(const float* from, std::int64_t, std::int64_t, std::int64_t count) {
        return along<Whole>(from, count);
    }
};

/// BF16 that becomes FP32.
struct WidenedBf16 {
    using Element = std::uint16_t;
    static constexpr int depth = 1;
    template <bool Whole>
    static __m512i along(const std::uint16_t* from, std::int64_t count) {
        return widened(sixteen_halves(from, Whole, count));
    }
    template <bool Whole>
    static __m512i across(const std::uint16_t* from, std::int64_t, std::int64_t, std::int64_t count) {
        return along<Whole>(from, count);
    }

  private:
    static __m512i widened(__m256i bf16) { return _mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16); }
};

/// Two BF16 neighbours along the depth, the first in the lower half.
struct PairedBf16 {
    using Element = std::uint16_t;
    static constexpr int depth = 2;
    template <bool Whole>
    static __m512i along(const std::uint16_t* from, std::int64_t count) {
        return Whole ? _mm512_loadu_si512(from) : _mm512_maskz_loadu_epi16(first(count), from);
    }
    template <bool Whole>
    static __m512i across(const std::uint16_t* from, std::int64_t stride, std::int64_t left,
                          std::int64_t count) {
        const __m256i odd =
            Whole || left > 1 ? sixteen_halves(from + stride, Whole, count) : _mm256_setzero_si256();
        const __m512i rows =
            _mm512_inserti64x4(_mm512_castsi256_si512(sixteen_halves(from, Whole, count)), odd, 1);
        // Half i of the one row, then half i of the other.
        return _mm512_permutexvar_epi16(
            pairs_of_halves(16, _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)),
            rows);
    }

  private:
    /// Indices of halves: each of `first`, and the one `apart` behind it.
    static __m512i pairs_of_halves(int apart, __m512i first) {
        return _mm512_or_si512(first,
                               _mm512_slli_epi32(_mm512_add_epi32(first, _mm512_set1_epi32(apart)), 16));
    }
};

using Block = __m512i[16];

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

/// Words (i, j) of 8 lines i become row j / 2, column j % 2 * 8 + i.
inline void transpose_eight(__m512i (&block)[8]) {
    // quads[4 g + c]: in each of its four lanes L, column 4 L + c of rows 4 g ... 4 g + 3.
    __m512i quads[8];
#pragma GCC unroll 2
    for (int g = 0; g < 8; g += 4) {
        const __m512i low01 = _mm512_unpacklo_epi32(block[g], block[g + 1]);
        const __m512i high01 = _mm512_unpackhi_epi32(block[g], block[g + 1]);
        const __m512i low23 = _mm512_unpacklo_epi32(block[g + 2], block[g + 3]);
        const __m512i high23 = _mm512_unpackhi_epi32(block[g + 2], block[g + 3]);
        quads[g] = _mm512_unpacklo_epi64(low01, low23);
        quads[g + 1] = _mm512_unpackhi_epi64(low01, low23);
        quads[g + 2] = _mm512_unpacklo_epi64(high01, high23);
        quads[g + 3] = _mm512_unpackhi_epi64(high01, high23);
    }
#pragma GCC unroll 2
    for (int c = 0; c < 4; c += 2) {
        const __m512i first_low = _mm512_shuffle_i32x4(quads[c], quads[4 + c], 0x44);
        const __m512i first_high = _mm512_shuffle_i32x4(quads[c], quads[4 + c], 0xee);
        const __m512i second_low = _mm512_shuffle_i32x4(quads[c + 1], quads[5 + c], 0x44);
        const __m512i second_high = _mm512_shuffle_i32x4(quads[c + 1], quads[5 + c], 0xee);
        block[c / 2] = _mm512_shuffle_i32x4(first_low, second_low, 0x88);
        block[2 + c / 2] = _mm512_shuffle_i32x4(first_low, second_low, 0xdd);
        block[4 + c / 2] = _mm512_shuffle_i32x4(first_high, second_high, 0x88);
        block[6 + c / 2] = _mm512_shuffle_i32x4(first_high, second_high, 0xdd);
    }
}

/// The contents of a row of sixteen words of a panel: words of a line, or one word of each of sixteen lines.
enum class Rows { lines, words };

template <bool Streaming>
inline void store(std::byte* to, __m512i words) {
    if constexpr (Streaming)
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to), words);
    else
        _mm512_storeu_si512(to, words);
}

/// Asks for stored rows, or parts of them, line of cache by line in the order of memory, as hardware
/// foresees. To L1: asked for into L2 only, they come a quarter more slowly.
class Ahead {
  public:
    template <class Element>
    Ahead(const Element* first, std::int64_t stride, std::int64_t columns)
        : row_(reinterpret_cast<const std::byte*>(first)),
          stride_(stride * static_cast<std::int64_t>(sizeof(Element))),
          row_bytes_(align_up(columns * static_cast<std::int64_t>(sizeof(Element)), 64)) {}

    void ask(int lines_of_cache) {
        for (int i = 0; i < lines_of_cache; ++i) {
            _mm_prefetch(row_ + at_, _MM_HINT_T0);
            at_ += 64;
            if (at_ == row_bytes_) {
                at_ = 0;
                row_ += stride_;
            }
        }
    }

  private:
    const std::byte* row_;
    std::int64_t stride_, row_bytes_, at_ = 0;
};

}  // namespace

}  // namespace mantissa::on_cpu
