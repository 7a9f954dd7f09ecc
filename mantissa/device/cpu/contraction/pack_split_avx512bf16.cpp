// Packing operands in two parts of BF16 into panels of tiles: each number is read once, split in registers
// and written to its two places.
#include <cstddef>
#include <cstdint>

#include "mantissa/device/cpu/contraction/pack_avx512.h"
#include "mantissa/device/cpu/contraction/pack_words_avx512.h"
#include "mantissa/device/cpu/contraction/split_avx512bf16.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t lines_of_panel = 32, depth_of_tile = 32, tile_bytes = 1024;

template <bool Whole>
inline __m512 sixteen(const float* from, std::int64_t count) {
    return _mm512_castsi512_ps(Floats::along<Whole>(from, count));
}
template <bool Whole>
inline __m512 sixteen(const std::uint16_t* from, std::int64_t count) {
    return _mm512_cvtph_ps(sixteen_halves(from, Whole, count));
}

/// Half i of the first sixteen, then half i of the other sixteen.
inline __m512i interleaved(__m512i halves) {
    const __m512i lower = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i upper = _mm512_slli_epi32(_mm512_add_epi32(lower, _mm512_set1_epi32(16)), 16);
    return _mm512_permutexvar_epi16(_mm512_or_si512(lower, upper), halves);
}

/// Sixteen rows of a tile of first parts, and of one of second parts.
struct TwoBlocks {
    Block hi, lo;
};

template <class Element, PanelSource Source, Rows Order, bool Streaming>
class SplitPanels {
    static constexpr bool asks_ahead = sizeof(Element) == 2;

  public:
    explicit SplitPanels(const PanelCopy& copy)
        : copy_(copy), part_bytes_(align_up(copy.depth, depth_of_tile) * lines_of_panel * 2) {}

    /// Packs a tile's depth of some lines at a time; across the depth, all lines of a panel, so that no line
    /// of cache is read twice. The next stored rows of FP16 are asked for meanwhile. Rows of FP32 would drive
    /// each other out of L1: 16 of 1,024 numbers are 64 KB. Asking for them took a seventh more time.
    void pack() {
        const std::int64_t lines = align_up(copy_.lines, lines_of_panel);
        if constexpr (Source == PanelSource::along_depth)
            for (std::int64_t line = 0; line < lines; line += 16) {
                const bool more = line + 16 < copy_.lines + copy_.rows_ahead;
                Ahead ahead(at(line + 16, 0), copy_.stride, copy_.depth);
                for (std::int64_t k = 0; k < copy_.depth; k += depth_of_tile)
                    pack_blocks<1>(line, k, more, ahead);
            }
        else
            for (std::int64_t k = 0; k < copy_.depth; k += depth_of_tile) {
                const bool more = k + depth_of_tile < copy_.depth + copy_.rows_ahead;
                Ahead ahead(at(0, k + depth_of_tile), copy_.stride, copy_.lines);
                for (std::int64_t line = 0; line < lines; line += 32) pack_blocks<2>(line, k, more, ahead);
            }
    }

    bool are_ordinary() const { return largest_.is_ordinary(); }

  private:
    const Element* at(std::int64_t line, std::int64_t k) const {
        return static_cast<const Element*>(copy_.source) +
               (Source == PanelSource::along_depth ? line * copy_.stride + k : k * copy_.stride + line);
    }

    template <int Sixteens>
    void pack_blocks(std::int64_t line, std::int64_t k, bool more, Ahead& ahead) {
        if (asks_ahead && more) ahead.ask(Sixteens * 16 * depth_of_tile * 2 / 64);
        const std::int64_t lines = copy_.lines - line, depth = copy_.depth - k;
        TwoBlocks blocks[Sixteens];
        if (lines >= Sixteens * 16 && depth >= depth_of_tile)
            load<Sixteens, true>(at(line, k), lines, depth, blocks);
        else
            load<Sixteens, false>(at(line, k), lines, depth, blocks);
        const std::int64_t step = k / depth_of_tile;
        std::byte* const panel =
            static_cast<std::byte*>(copy_.panel) + line / lines_of_panel * copy_.panel_bytes;
        std::byte* to = panel + (step * 2 + line % lines_of_panel / 16) * tile_bytes;
        for (TwoBlocks& block : blocks) {
            store_block(block.hi, to);
            store_block(block.lo, to + part_bytes_);
            to += tile_bytes;
        }
        if (line % lines_of_panel == 0)
            store<Streaming>(panel + 2 * part_bytes_ + 64 * step, _mm512_setzero_si512());
    }

    static void store_block(Block& block, std::byte* to) {
        if constexpr ((Order == Rows::lines) != (Source == PanelSource::along_depth)) transpose(block);
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) store<Streaming>(to + 64 * i, block[i]);
    }

    /// Loads stored rows, or pairs of them. Elements that the source lacks are 0 and not read.
    template <int Sixteens, bool Whole>
    void load(const Element* from, std::int64_t lines, std::int64_t depth, TwoBlocks* blocks) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i)
#pragma GCC unroll 2
            for (int part = 0; part < Sixteens; ++part) {
                Parts parts;
                if constexpr (Source == PanelSource::along_depth) {
                    const Element* const row = from + i * copy_.stride;
                    const std::int64_t there = i < lines ? depth : 0;
                    parts = split(sixteen<Whole>(row, there), sixteen<Whole>(row + 16, there - 16));
                } else {
                    const Element* const row = from + 2 * i * copy_.stride + 16 * part;
                    const std::int64_t there = lines - 16 * part;
                    parts = split(sixteen<Whole>(row, 2 * i < depth ? there : 0),
                                  sixteen<Whole>(row + copy_.stride, 2 * i + 1 < depth ? there : 0));
                    parts = {interleaved(parts.hi), interleaved(parts.lo)};
                }
                blocks[part].hi[i] = parts.hi;
                blocks[part].lo[i] = parts.lo;
            }
    }

    Parts split(__m512 first, __m512 second) {
        largest_.add(first);
        largest_.add(second);
        return parts_of(first, second);
    }

    PanelCopy copy_;
    std::int64_t part_bytes_;
    Largest largest_;
};

template <class Element, PanelSource Source, Rows Order>
bool pack(const PanelCopy& copy) {
    const auto packed = [](auto panels) {
        panels.pack();
        return panels.are_ordinary();
    };
    const bool whole_lines =
        reinterpret_cast<std::uintptr_t>(copy.panel) % 64 == 0 && copy.panel_bytes % 64 == 0;
    return copy.streaming && whole_lines ? packed(SplitPanels<Element, Source, Order, true>(copy))
                                         : packed(SplitPanels<Element, Source, Order, false>(copy));
}

template <Rows Order>
constexpr SplitKernels kernels_of = {
    {{pack<float, PanelSource::along_depth, Order>, pack<std::uint16_t, PanelSource::along_depth, Order>},
     {pack<float, PanelSource::across_depth, Order>, pack<std::uint16_t, PanelSource::across_depth, Order>}}};

}  // namespace

SplitKernels split_tile_panels_a_avx512bf16() { return kernels_of<Rows::lines>; }
SplitKernels split_tile_panels_b_avx512bf16() { return kernels_of<Rows::words>; }

}  // namespace mantissa::on_cpu
