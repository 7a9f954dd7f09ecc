// Products of BF16 tiles with FP32 sums, for any tile unit: AMX, or its checked twin in plain C++. Only for
// the two sources that define a unit; everything is in an anonymous namespace, so that each keeps its own
// copy.
//
// A unit has eight tiles of 16 rows of 64 bytes and offers
//     zero<T>(), load<T>(from, stride), multiply<Sums, A, B>(), store<T>(to, stride), leave(sums, tile),
//     prefetch(from)
// with tile numbers known at compile time and strides in bytes; tiles of operands are 1 KiB in one piece.
// multiply() adds to the FP32 tile [16, 16] the product of a BF16 tile of a, [16 rows, 32 deep], and one of
// b, [16 pairs deep, 16 columns, 2]. leave() copies or adds whole tiles of sums to the part of a block that
// there is.
//
// A panel of a is 32 rows: for each 32 of the depth two tiles, rows 0-15 and 16-31. A panel of b is 32
// columns: for each 32 of the depth two tiles, columns 0-15 and 16-31, whose elements (k, column) lie at (k /
// 2, column, k % 2).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "mantissa/device/cpu/contraction/kernels.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t tile_panel = 32;  // rows of a panel of a, columns of a panel of b
constexpr std::int64_t tile_depth = 32;  // of one product of tiles
constexpr std::int64_t tile_bytes = 1024;

/// Element index of (line, k) in a panel of a, and in a panel of b.
constexpr std::int64_t index_in_a(std::int64_t line, std::int64_t k) {
    return k / tile_depth * tile_panel * tile_depth + line * tile_depth + k % tile_depth;
}
constexpr std::int64_t index_in_b(std::int64_t line, std::int64_t k) {
    const std::int64_t tile = k / tile_depth * 2 + line / 16;
    return tile * (tile_bytes / 2) + k % tile_depth / 2 * 32 + line % 16 * 2 + k % 2;
}

/// Plain loops, element by element. The depth of the copy may end inside of a tile; the rest of it becomes 0.
template <PanelSource Source, std::int64_t (*Index)(std::int64_t, std::int64_t)>
void pack_tiles(const PanelCopy& copy) {
    const auto* const source = static_cast<const std::uint16_t*>(copy.source);
    const std::int64_t line_step = Source == PanelSource::along_depth ? copy.stride : 1;
    const std::int64_t depth_step = Source == PanelSource::along_depth ? 1 : copy.stride;
    const std::int64_t padded = (copy.depth + tile_depth - 1) / tile_depth * tile_depth;
    auto* first = static_cast<std::byte*>(copy.panel);
    for (std::int64_t begin = 0; begin < copy.lines; begin += tile_panel, first += copy.panel_bytes) {
        auto* const panel = reinterpret_cast<std::uint16_t*>(first);
        const std::int64_t lines = std::min(tile_panel, copy.lines - begin);
        if (lines < tile_panel || copy.depth < padded)
            std::memset(panel, 0, static_cast<std::size_t>(padded * tile_panel) * sizeof *panel);
        for (std::int64_t line = 0; line < lines; ++line)
            for (std::int64_t k = 0; k < copy.depth; ++k)
                panel[Index(line, k)] = source[(begin + line) * line_step + k * depth_step];
    }
}

using TileSums = float[4][16][16];  // rows 0-15 and columns 0-15, then 16-31, then the rows below

/// Sums += a panel times a panel. What is wanted soon, four lines of a panel, is asked for on the way, a few
/// lines of cache with each product.
template <class Unit>
inline void multiply_panels_of_tiles(Unit& unit, const Tile& tile) {
    const auto* a = static_cast<const std::byte*>(tile.a);
    const auto* b = static_cast<const std::byte*>(tile.b);
    const auto* ahead = static_cast<const std::byte*>(tile.ahead);
    for (std::int64_t k = 0; k < tile.depth; k += tile_depth, a += 2 * tile_bytes, b += 2 * tile_bytes) {
        for (std::int64_t line = 0; ahead && line < tile.lines_ahead; ++line, ahead += 2 * tile_depth)
            unit.prefetch(ahead);
        unit.template load<4>(a, 64);
        unit.template load<6>(b, 64);
        unit.template load<7>(b + tile_bytes, 64);
        unit.template load<5>(a + tile_bytes, 64);
        unit.template multiply<0, 4, 6>();
        unit.template multiply<1, 4, 7>();
        unit.template multiply<2, 5, 6>();
        unit.template multiply<3, 5, 7>();
    }
}

/// 2 x 2 tiles of sums: four products for four loads. A whole block that stays in the caches is loaded and
/// stored where it lies. Part of one, and one that lies in memory, leaves by way of a scratch in L1: tiles
/// stored to memory take about twice as long.
template <class Unit>
void multiply_tiles(const Tile& tile) {
    Unit unit;
    const bool in_place = tile.rows == tile_panel && tile.cols == tile_panel && !tile.streaming && !tile.far;
    // Lines that are added to are on their way while the products are formed.
    for (std::int64_t i = 0; tile.far && tile.accumulate && i < tile.rows; ++i)
        for (std::int64_t column = 0; column < tile.cols; column += 16)
            unit.prefetch(tile.c + i * tile.ldc + column);
    const std::int64_t stride = tile.ldc * 4;
    float *const above = tile.c, *const below = tile.c + 16 * tile.ldc;
    if (in_place && tile.accumulate) {
        unit.template load<0>(above, stride);
        unit.template load<1>(above + 16, stride);
        unit.template load<2>(below, stride);
        unit.template load<3>(below + 16, stride);
    } else {
        unit.template zero<0>();
        unit.template zero<1>();
        unit.template zero<2>();
        unit.template zero<3>();
    }
    multiply_panels_of_tiles(unit, tile);
    if (in_place) {
        unit.template store<0>(above, stride);
        unit.template store<1>(above + 16, stride);
        unit.template store<2>(below, stride);
        unit.template store<3>(below + 16, stride);
        return;
    }
    alignas(64) TileSums sums;
    unit.template store<0>(sums[0], 64);
    unit.template store<1>(sums[1], 64);
    unit.template store<2>(sums[2], 64);
    unit.template store<3>(sums[3], 64);
    unit.leave(sums, tile);
}

template <class Unit>
ContractionKernels tile_kernels() {
    constexpr auto along = PanelSource::along_depth;
    constexpr auto across = PanelSource::across_depth;
    // For an L2 of 2 MB. One chunk holds the depth of GPT-2's widest layer, 3,072: the block of a is then 192
    // rows, or 256 of up to 2,304 deep, 1,152 KB, and two panels of b are 384 KB. Where k is more, the sums
    // of a block, 256 x 768, are 768 KB, its rows of a, 1,536 deep, as many, and two panels of b 192 KB.
    return {
        .height = tile_panel,
        .width = tile_panel,
        .depth_unit = tile_depth,
        .most_depth = 1536,
        .most_block_bytes = 1152 << 10,
        .whole_depth = 3072,
        .most_partial_bytes = 768 << 10,
        .element_bytes = 2,
        .finish = finish_block_generic,
        .multiply = multiply_tiles<Unit>,
        .pack_a = {{{nullptr, pack_tiles<along, index_in_a>}, {nullptr, pack_tiles<across, index_in_a>}}},
        .pack_b = {{{nullptr, pack_tiles<along, index_in_b>}, {nullptr, pack_tiles<across, index_in_b>}}}};
}

}  // namespace

}  // namespace mantissa::on_cpu
