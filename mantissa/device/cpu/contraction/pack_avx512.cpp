#include "mantissa/device/cpu/contraction/pack_avx512.h"

#include <cstddef>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/pack_words_avx512.h"

namespace mantissa::inline v0::on_cpu {

namespace {

// The order of a panel: 16 words of each of 16 lines, from `line` and `word` on, are 16 rows `row_bytes`
// apart; `at` is the byte of the first.

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
        return (word / 16 * 2 + line / 16) * 1024 + (Order == Rows::words ? word : line) % 16 * row_bytes;
    }
};

/// A block of 16 words of some lines: its source, the source's extent, and the place of its first row.
template <class Words>
struct Place {
    const typename Words::Element* source;
    std::int64_t stride;  ///< from one line to the next, or across the depth from one word to the next
    std::int64_t beside;  ///< across: from a word's first stored row to its second
    std::int64_t lines, depth;
    std::byte* to;
};

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
                       ? Words::template across<Whole>(place.source + i * place.stride, place.beside,
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
    const std::int64_t words = ceil_div(place.depth, Words::depth);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
        if (Whole || Panel::filled_up || i < words)
            store<Streaming>(place.to + i * Panel::row_bytes, block[i]);
}

/// Two words of each of eight lines, which are the whole panel, or the one word that remains.
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
    const std::int64_t words = Whole ? 16 : ceil_div(place.depth, Words::depth);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) store_eight<Streaming>(place.to + 64 * i, block[i], words - 2 * i);
}

/// Packs 32 lines of BF16 across the depth. Every stored row gives a line of cache at once: read twice, rows
/// that are a multiple of 4 KB apart drive each other out of L1 between.
template <class Panel, bool Streaming>
inline void pack_pairs_across(const Place<PairedBf16>& place) {
    // Each four lanes: low has lines 0-3, 8-11, 16-19 and 24-27, high the lines between.
    Block low, high;
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
        const __m512i even = _mm512_loadu_si512(place.source + i * place.stride);
        const __m512i odd = _mm512_loadu_si512(place.source + i * place.stride + place.beside);
        low[i] = _mm512_unpacklo_epi16(even, odd);
        high[i] = _mm512_unpackhi_epi16(even, odd);
    }
    transpose(low);
    transpose(high);
    std::byte* const left = place.to;
    std::byte* const right = place.to + Panel::at(16, 0);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
        std::byte* const to = (i < 8 ? left : right) + (i / 4 % 2 * 8 + i % 4) * Panel::row_bytes;
        store<Streaming>(to, low[i]);
        store<Streaming>(to + 4 * Panel::row_bytes, high[i]);
    }
}

/// Elements from one word to the next across the depth.
template <class Words>
inline std::int64_t word_stride(const PanelCopy& copy) {
    return copy.beside == 0 ? Words::depth * copy.stride : copy.stride;
}
inline std::int64_t beside(const PanelCopy& copy) { return copy.beside == 0 ? copy.stride : copy.beside; }

/// The block of 16 lines and 16 words at `line` and `k`.
template <class Words, PanelSource Source, class Panel>
inline Place<Words> place_in(const PanelCopy& copy, std::int64_t line, std::int64_t k) {
    const bool along = Source == PanelSource::along_depth;
    const std::int64_t stride = along ? copy.stride : word_stride<Words>(copy);
    return {static_cast<const typename Words::Element*>(copy.source) +
                (along ? line * stride + k : k / Words::depth * stride + line),
            stride,
            beside(copy),
            copy.lines - line,
            copy.depth - k,
            static_cast<std::byte*>(copy.panel) + line / Panel::size * copy.panel_bytes +
                Panel::at(line % Panel::size, k / Words::depth)};
}

template <class Panel>
inline std::int64_t padded_lines(const PanelCopy& copy) {
    return align_up(copy.lines, Panel::size);
}

/// Sixteen lines at a time, or a panel of eight, all of their depth; the next as many are asked for
/// meanwhile.
template <class Words, class Panel, bool Streaming>
inline void pack_along(const PanelCopy& copy) {
    constexpr auto along = PanelSource::along_depth;
    constexpr std::int64_t deep = 16 * Words::depth, lines = Panel::size < 16 ? 8 : 16;
    constexpr auto lines_of_cache = static_cast<int>(lines * deep * sizeof(typename Words::Element) / 64);
    for (std::int64_t line = 0; line < padded_lines<Panel>(copy); line += lines) {
        const bool more = line + lines < copy.lines + copy.rows_ahead;
        Ahead ahead(place_in<Words, along, Panel>(copy, line + lines, 0).source, copy.stride, copy.depth);
        for (std::int64_t k = 0; k < copy.depth; k += deep) {
            const auto place = place_in<Words, along, Panel>(copy, line, k);
            if (more) ahead.ask(lines_of_cache);
            const bool whole = place.lines >= lines && place.depth >= deep;
            if constexpr (lines == 8)
                whole ? pack_eight_along<Words, Streaming, true>(place)
                      : pack_eight_along<Words, Streaming, false>(place);
            else
                whole ? pack_block<Words, along, Panel, Streaming, true>(place)
                      : pack_block<Words, along, Panel, Streaming, false>(place);
        }
    }
}

/// Blocks of sixteen words of the depth, where words are turned into lines: 32 lines at a time where there
/// are so many. The next stored rows are asked for meanwhile.
template <class Words, class Panel, bool Streaming>
inline void pack_blocks_across(const PanelCopy& copy) {
    constexpr auto across = PanelSource::across_depth;
    constexpr std::int64_t deep = 16 * Words::depth;
    for (std::int64_t k = 0; k < copy.depth; k += deep) {
        const bool more = k + deep < copy.depth + copy.rows_ahead;
        Ahead ahead(place_in<Words, across, Panel>(copy, 0, k + deep).source, copy.stride, copy.lines);
        for (std::int64_t line = 0; line < padded_lines<Panel>(copy); line += 32) {
            const auto place = place_in<Words, across, Panel>(copy, line, k);
            if (more) ahead.ask(deep);
            if (place.depth >= deep && place.lines >= 32) {
                pack_pairs_across<Panel, Streaming>(place);
                continue;
            }
            for (const std::int64_t part : {line, line + 16})
                pack_block<Words, across, Panel, Streaming, false>(
                    place_in<Words, across, Panel>(copy, part, k));
        }
    }
}

/// `Count` words of each of sixteen lines. Where panels have eight, two are a line of cache for two panels.
template <class Words, class Panel, int Count, bool Streaming, bool Whole>
inline void pack_words_across(const PanelCopy& copy, std::int64_t line, std::int64_t k) {
    const auto place = place_in<Words, PanelSource::across_depth, Panel>(copy, line, k);
    __m512i words[Count];
#pragma GCC unroll 2
    for (int i = 0; i < Count; ++i) {
        const std::int64_t from = i * Words::depth;
        words[i] = Whole || from < place.depth
                       ? Words::template across<Whole>(place.source + i * place.stride, place.beside,
                                                       place.depth - from, place.lines)
                       : _mm512_setzero_si512();
    }
    const std::int64_t there = Whole || Panel::filled_up ? Count : ceil_div(place.depth, Words::depth);
    if constexpr (Panel::size == 8) {
        store_eight<Streaming>(place.to, _mm512_shuffle_i64x2(words[0], words[1], 0x44), there);
        if (Whole || place.lines > 8)
            store_eight<Streaming>(place.to + copy.panel_bytes,
                                   _mm512_shuffle_i64x2(words[0], words[1], 0xee), there);
    } else {
#pragma GCC unroll 2
        for (int i = 0; i < Count; ++i)
            if (i < there) store<Streaming>(place.to + i * Panel::row_bytes, words[i]);
    }
}

/// Packs stored rows in the order of memory, and asks for the rows 4 KB further on. Hardware foresees few
/// rows at a time best: rows of one word, or of two where one gives a panel less than two lines of cache.
/// Measured on tiles: 0.6 to 0.8 of a copy with one word, 0.75 to 0.9 with two, less with four.
template <class Words, class Panel, bool Streaming>
inline void pack_rows_across(const PanelCopy& copy) {
    using Element = typename Words::Element;
    constexpr int words = Panel::row_bytes < 128 ? 2 : 1;
    constexpr std::int64_t rows = words * Words::depth, in_cache_line = 64 / sizeof(Element);
    const std::int64_t row_bytes = copy.lines * static_cast<std::int64_t>(sizeof(Element));
    const std::int64_t distance = (4096 / (rows * row_bytes) + 1) * rows;
    constexpr std::int64_t deep = 16 * Words::depth;
    const std::int64_t depth = Panel::filled_up ? align_up(copy.depth, deep) : copy.depth;
    const std::int64_t stride = word_stride<Words>(copy);
    for (std::int64_t k = 0; k < depth; k += rows) {
        const bool more = k + distance < copy.depth + copy.rows_ahead;
        const Element* const next =
            static_cast<const Element*>(copy.source) + (k + distance) / Words::depth * stride;
        std::int64_t line = 0;
        for (; k + rows <= copy.depth && line + in_cache_line <= copy.lines; line += in_cache_line) {
#pragma GCC unroll 4
            for (std::int64_t row = 0; more && row < rows; ++row)
                _mm_prefetch(next + row / Words::depth * stride + row % Words::depth * beside(copy) + line,
                             _MM_HINT_T0);
#pragma GCC unroll 2
            for (std::int64_t part = 0; part < in_cache_line; part += 16)
                pack_words_across<Words, Panel, words, Streaming, true>(copy, line + part, k);
        }
        for (; line < padded_lines<Panel>(copy); line += 16)
            pack_words_across<Words, Panel, words, Streaming, false>(copy, line, k);
    }
}

template <class Words, PanelSource Source, class Panel, bool Streaming>
void pack_panels(const PanelCopy& copy) {
    if constexpr (Source == PanelSource::along_depth)
        pack_along<Words, Panel, Streaming>(copy);
    else if constexpr (Panel::rows == Rows::words)
        pack_rows_across<Words, Panel, Streaming>(copy);
    else
        pack_blocks_across<Words, Panel, Streaming>(copy);
}

template <class Words, PanelSource Source, class Panel>
void pack(const PanelCopy& copy) {
    const bool whole_lines =
        reinterpret_cast<std::uintptr_t>(copy.panel) % 64 == 0 && copy.panel_bytes % 64 == 0;
    if (copy.streaming && whole_lines)
        pack_panels<Words, Source, Panel, true>(copy);
    else
        pack_panels<Words, Source, Panel, false>(copy);
}

template <class Words, class Panel>
constexpr std::array<PanelKernel, 2> kernels_of = {pack<Words, PanelSource::along_depth, Panel>,
                                                   pack<Words, PanelSource::across_depth, Panel>};

/// Panels of pairs; FP32 has none.
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

}  // namespace mantissa::on_cpu
