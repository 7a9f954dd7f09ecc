// Products of BF16 tiles with FP32 sums, for any tile unit: AMX, or its checked twin in plain C++. Only for
// the two sources that define a unit; everything is in an anonymous namespace, so that each keeps its own
// copy.
//
// A unit has eight tiles of 16 rows of 64 bytes and offers
//     zero<T>(), load<T>(from), multiply<Sums, A, B>(), store<T>(to)
// with tile numbers known at compile time; tiles in memory are 1 KiB in one piece. multiply() adds to the
// FP32 tile [16, 16] the product of a BF16 tile of a, [16 rows, 32 deep], and one of b, [16 pairs deep, 16
// columns, 2].
//
// A panel of a is 32 rows: for each 32 of the depth two tiles, rows 0-15 and 16-31. A panel of b is 32
// columns: for each 32 of the depth two tiles, columns 0-15 and 16-31, whose elements (k, column) lie at (k /
// 2, column, k % 2).
#pragma once

#include <cstdint>
#include <cstring>

#include "mantissa/device/cpu/contraction/kernels.h"

namespace mantissa::cpu {

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
    auto* const panel = static_cast<std::uint16_t*>(copy.panel);
    const std::int64_t line_step = Source == PanelSource::along_depth ? copy.stride : 1;
    const std::int64_t depth_step = Source == PanelSource::along_depth ? 1 : copy.stride;
    const std::int64_t padded = (copy.depth + tile_depth - 1) / tile_depth * tile_depth;
    if (copy.lines < tile_panel || copy.depth < padded)
        std::memset(panel, 0, static_cast<std::size_t>(padded * tile_panel) * sizeof *panel);
    for (std::int64_t line = 0; line < copy.lines; ++line)
        for (std::int64_t k = 0; k < copy.depth; ++k)
            panel[Index(line, k)] = source[line * line_step + k * depth_step];
}

/// 2 x 2 tiles of sums: four products for four loads. The sums leave by way of a scratch in L1, since a tile
/// stored to distant rows costs more than the copy.
template <class Unit>
void multiply_tiles(const Tile& tile) {
    Unit unit;
    unit.template zero<0>();
    unit.template zero<1>();
    unit.template zero<2>();
    unit.template zero<3>();
    const auto* a = static_cast<const std::byte*>(tile.a);
    const auto* b = static_cast<const std::byte*>(tile.b);
    for (std::int64_t k = 0; k < tile.depth; k += tile_depth, a += 2 * tile_bytes, b += 2 * tile_bytes) {
        unit.template load<4>(a);
        unit.template load<6>(b);
        unit.template load<7>(b + tile_bytes);
        unit.template load<5>(a + tile_bytes);
        unit.template multiply<0, 4, 6>();
        unit.template multiply<1, 4, 7>();
        unit.template multiply<2, 5, 6>();
        unit.template multiply<3, 5, 7>();
    }
    alignas(64) float sums[4][16][16];
    unit.template store<0>(sums[0]);
    unit.template store<1>(sums[1]);
    unit.template store<2>(sums[2]);
    unit.template store<3>(sums[3]);
    for (std::int64_t i = 0; i < tile.rows; ++i)
        for (std::int64_t half = 0; half < 2 && half * 16 < tile.cols; ++half) {
            const float* const from = sums[i / 16 * 2 + half][i % 16];
            float* const to = tile.c + i * tile.ldc + half * 16;
            const std::int64_t cols = tile.cols - half * 16 < 16 ? tile.cols - half * 16 : 16;
            for (std::int64_t j = 0; j < cols; ++j) to[j] = tile.accumulate ? to[j] + from[j] : from[j];
        }
}

template <class Unit>
ContractionKernels tile_kernels() {
    constexpr auto along = PanelSource::along_depth;
    constexpr auto across = PanelSource::across_depth;
    // A chunk 1,024 deep makes the block of a, 256 rows of BF16, 512 KB and a panel of b 64 KB: for an L2 of
    // 2 MB. Storing tiles costs more than loading them, so the depth is cut as seldom as that allows.
    return {
        .height = tile_panel,
        .width = tile_panel,
        .depth_unit = tile_depth,
        .most_depth = 1024,
        .element_bytes = 2,
        .finish = finish_block_generic,
        .multiply = multiply_tiles<Unit>,
        .pack_a = {{{nullptr, pack_tiles<along, index_in_a>}, {nullptr, pack_tiles<across, index_in_a>}}},
        .pack_b = {{{nullptr, pack_tiles<along, index_in_b>}, {nullptr, pack_tiles<across, index_in_b>}}}};
}

}  // namespace

}  // namespace mantissa::cpu
