#include "mantissa/device/cpu/contraction/pack_avx512.h"

#include <cstddef>

#include "mantissa/device/cpu/contraction/pack_words_avx512.h"

namespace mantissa::cpu {

namespace {

/// What a row of sixteen words of a panel holds: those of a line, or one of each of sixteen lines.
enum class Rows { lines, words };

// How a panel lies: 16 words of each of 16 lines, from `line` and `word` on, are 16 rows `row_bytes` apart,
// the first `at` so many bytes.

/// [words along the depth][Size lines]. Ends with the depth.
template <int Size>
struct WordPanel {
    static constexpr int size = Size;
    static constexpr Rows rows = Rows::words;
    static constexpr std::int64_t row_bytes = Size * 4;
    static constexpr bool filled_up = false;
    static std::int64_t at(std::int64_t line, std::int64_t word) { return word * row_bytes + line * 4; }
};

/// Tiles of 16 rows of 16 words, two of 16 lines for each 16 words of the depth. The last are filled up.
template <Rows Order>
struct TilePanel {
    static constexpr int size = 32;
    static constexpr Rows rows = Order;
    static constexpr std::int64_t row_bytes = 64;
    static constexpr bool filled_up = true;
    static std::int64_t at(std::int64_t line, std::int64_t word) {
        return (word / 16 * 2 + line / 16) * 1024;
    }
};

/// A block of 16 words of some lines: its source, what there is of that, and where its first row goes.
template <class Words>
struct Place {
    const typename Words::Element* source;
    std::int64_t stride;
    std::int64_t lines, depth;
    std::byte* to;
};

template <bool Streaming>
inline void store(std::byte* to, __m512i words) {
    if constexpr (Streaming)
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to), words);
    else
        _mm512_storeu_si512(to, words);
}

template <class Words, bool Whole>
inline void load_lines(const Place<Words>& place, Block& block) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
        block[i] = Whole || i < place.lines
                       ? Words::template along<Whole>(place.source + i * place.stride, place.depth)
                       : _mm512_setzero_si512();
}

template <class Words, bool Whole>
inline void load_words(const Place<Words>& place, Block& block) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
        const std::int64_t k = i * Words::depth;
        block[i] = Whole || k < place.depth
                       ? Words::template across<Whole>(place.source + k * place.stride, place.stride,
                                                       place.depth - k, place.lines)
                       : _mm512_setzero_si512();
    }
}

/// Sixteen lines.
template <class Words, PanelSource Source, class Panel, bool Streaming, bool Whole>
inline void pack_block(const Place<Words>& place) {
    constexpr bool along = Source == PanelSource::along_depth;
    Block block;
    if constexpr (along)
        load_lines<Words, Whole>(place, block);
    else
        load_words<Words, Whole>(place, block);
    if constexpr ((Panel::rows == Rows::lines) != along) transpose(block);
    const std::int64_t words = (place.depth + Words::depth - 1) / Words::depth;
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
        if (Whole || Panel::filled_up || i < words)
            store<Streaming>(place.to + i * Panel::row_bytes, block[i]);
}

/// Two words of each of eight lines, which are all of the panel, or the one that is left.
template <bool Streaming>
inline void store_eight(std::byte* to, __m512i two_words, std::int64_t words) {
    if (words > 1)
        store<Streaming>(to, two_words);
    else if (words > 0)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_castsi512_si256(two_words));
}

template <class Words, bool Streaming, bool Whole>
inline void pack_eight_along(const Place<Words>& place) {
    __m512i block[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i)
        block[i] = Whole || i < place.lines
                       ? Words::template along<Whole>(place.source + i * place.stride, place.depth)
                       : _mm512_setzero_si512();
    transpose_eight(block);
    const std::int64_t words = Whole ? 16 : (place.depth + Words::depth - 1) / Words::depth;
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) store_eight<Streaming>(place.to + 64 * i, block[i], words - 2 * i);
}

template <class Words, bool Streaming, bool Whole>
inline void pack_eight_across(const Place<Words>& place) {
    const std::int64_t words = (place.depth + Words::depth - 1) / Words::depth;
    for (std::int64_t word = 0; word < words; word += 2) {
        const std::int64_t k = word * Words::depth;
        store_eight<Streaming>(
            place.to + 32 * word,
            Words::template across_eight<Whole>(place.source + k * place.stride, place.stride,
                                                place.depth - k, place.lines),
            Whole ? 2 : words - word);
    }
}

/// 32 lines of BF16 across the depth, of which every stored row gives a line of cache at once: read twice,
/// rows that are a multiple of 4 KB apart drive each other out of L1 between.
template <class Panel, bool Streaming>
inline void pack_pairs_across(const Place<PairedBf16>& place) {
    // Of each four lanes, low has lines 0-3, 8-11, 16-19 and 24-27, high those between.
    Block low, high;
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
        const __m512i even = _mm512_loadu_si512(place.source + 2 * i * place.stride);
        const __m512i odd = _mm512_loadu_si512(place.source + (2 * i + 1) * place.stride);
        low[i] = _mm512_unpacklo_epi16(even, odd);
        high[i] = _mm512_unpackhi_epi16(even, odd);
    }
    std::byte* const left = place.to;
    std::byte* const right = place.to + Panel::at(16, 0);
    if constexpr (Panel::rows == Rows::words) {
        const __m512i of_left = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
        const __m512i of_right = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
            store<Streaming>(left + i * Panel::row_bytes,
                             _mm512_permutex2var_epi64(low[i], of_left, high[i]));
            store<Streaming>(right + i * Panel::row_bytes,
                             _mm512_permutex2var_epi64(low[i], of_right, high[i]));
        }
    } else {
        transpose(low);
        transpose(high);
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
            std::byte* const to = (i < 8 ? left : right) + (i / 4 % 2 * 8 + i % 4) * Panel::row_bytes;
            store<Streaming>(to, low[i]);
            store<Streaming>(to + 4 * Panel::row_bytes, high[i]);
        }
    }
}

template <class Words, PanelSource Source, class Panel>
inline Place<Words> place_in(const PanelCopy& copy, std::int64_t line, std::int64_t k) {
    const bool along = Source == PanelSource::along_depth;
    return {static_cast<const typename Words::Element*>(copy.source) +
                (along ? line * copy.stride + k : k * copy.stride + line),
            copy.stride, copy.lines - line, copy.depth - k,
            static_cast<std::byte*>(copy.panel) + Panel::at(line, k / Words::depth)};
}

/// Two neighbouring lines of cache of each of `lines` lines: measured, pairs are the quickest.
template <class Words>
inline void ask_for_pairs(const Place<Words>& place, std::int64_t ahead, std::int64_t lines) {
    for (std::int64_t i = 0; i < lines; ++i) {
        const auto* const wanted =
            reinterpret_cast<const std::byte*>(place.source + i * place.stride + ahead);
        _mm_prefetch(wanted, _MM_HINT_T1);
        _mm_prefetch(wanted + 64, _MM_HINT_T1);
    }
}

/// Sixteen lines at a time, all of their depth: hardware foresees so many streams, and not twice as many.
template <class Words, class Panel, bool Streaming>
inline void pack_along(const PanelCopy& copy) {
    constexpr auto along = PanelSource::along_depth;
    constexpr std::int64_t deep = 16 * Words::depth, lines = Panel::size < 16 ? 8 : 16;
    for (std::int64_t line = 0; line < Panel::size; line += lines)
        for (std::int64_t k = 0; k < copy.depth; k += deep) {
            const auto place = place_in<Words, along, Panel>(copy, line, k);
            if (copy.ahead > 0 && k % (2 * deep) == 0) ask_for_pairs(place, copy.ahead, lines);
            const bool whole = place.lines >= lines && place.depth >= deep;
            if constexpr (lines == 8)
                whole ? pack_eight_along<Words, Streaming, true>(place)
                      : pack_eight_along<Words, Streaming, false>(place);
            else
                whole ? pack_block<Words, along, Panel, Streaming, true>(place)
                      : pack_block<Words, along, Panel, Streaming, false>(place);
        }
}

/// Sixteen lines across, or 32 where they are BF16 and there are so many. Returns how many.
template <class Words, class Panel, bool Streaming>
inline int pack_block_across(const PanelCopy& copy, std::int64_t line, std::int64_t k) {
    constexpr auto across = PanelSource::across_depth;
    const auto place = place_in<Words, across, Panel>(copy, line, k);
    const bool deep_enough = place.depth >= 16 * Words::depth;
    if constexpr (Words::depth == 2)
        if (deep_enough && place.lines >= 32 && line + 32 <= Panel::size) {
            pack_pairs_across<Panel, Streaming>(place);
            return 32;
        }
    deep_enough&& place.lines >= 16 ? pack_block<Words, across, Panel, Streaming, true>(place)
                                    : pack_block<Words, across, Panel, Streaming, false>(place);
    return 16;
}

template <class Words, class Panel, bool Streaming>
inline void pack_across(const PanelCopy& copy) {
    if constexpr (Panel::size == 8) {
        const auto place = place_in<Words, PanelSource::across_depth, Panel>(copy, 0, 0);
        copy.lines == 8 && copy.depth % (2 * Words::depth) == 0
            ? pack_eight_across<Words, Streaming, true>(place)
            : pack_eight_across<Words, Streaming, false>(place);
    } else {
        for (std::int64_t k = 0; k < copy.depth; k += 16 * Words::depth)
            for (std::int64_t line = 0; line < Panel::size;)
                line += pack_block_across<Words, Panel, Streaming>(copy, line, k);
    }
}

template <class Words, PanelSource Source, class Panel>
void pack(const PanelCopy& copy) {
    const bool streaming = copy.streaming && reinterpret_cast<std::uintptr_t>(copy.panel) % 64 == 0;
    if constexpr (Source == PanelSource::along_depth)
        streaming ? pack_along<Words, Panel, true>(copy) : pack_along<Words, Panel, false>(copy);
    else
        streaming ? pack_across<Words, Panel, true>(copy) : pack_across<Words, Panel, false>(copy);
}

template <class Words, class Panel>
constexpr std::array<PanelKernel, 2> kernels_of = {pack<Words, PanelSource::along_depth, Panel>,
                                                   pack<Words, PanelSource::across_depth, Panel>};

/// Panels of pairs: there are none of FP32.
template <class Panel>
PanelKernels panels_of_pairs() {
    const auto& [along, across] = kernels_of<PairedBf16, Panel>;
    return {{{nullptr, along}, {nullptr, across}}};
}

template <int Size>
PanelKernels widened_panels() {
    const auto& [along, across] = kernels_of<Floats, WordPanel<Size>>;
    const auto& [widened_along, widened_across] = kernels_of<WidenedBf16, WordPanel<Size>>;
    return {{{along, widened_along}, {across, widened_across}}};
}

}  // namespace

template <>
PanelKernels widened_panels_avx512<8>() {
    return widened_panels<8>();
}
template <>
PanelKernels widened_panels_avx512<32>() {
    return widened_panels<32>();
}
template <>
PanelKernels widened_panels_avx512<48>() {
    return widened_panels<48>();
}
template <>
PanelKernels widened_panels_avx512<96>() {
    return widened_panels<96>();
}

template <>
PanelKernels paired_panels_avx512<8>() {
    return panels_of_pairs<WordPanel<8>>();
}
template <>
PanelKernels paired_panels_avx512<32>() {
    return panels_of_pairs<WordPanel<32>>();
}
template <>
PanelKernels paired_panels_avx512<48>() {
    return panels_of_pairs<WordPanel<48>>();
}

// Rows of a tile of a are lines; rows of a tile of b are pairs along the depth.
PanelKernels tile_panels_a_avx512() { return panels_of_pairs<TilePanel<Rows::lines>>(); }
PanelKernels tile_panels_b_avx512() { return panels_of_pairs<TilePanel<Rows::words>>(); }

}  // namespace mantissa::cpu
