// Matrices of bytes on AMX tiles.
#include "mantissa/device/cpu/amx_tiles.h"
#include "mantissa/device/cpu/modes/byte_kernels.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t tile_lines = 16;         // and words of a row
constexpr std::int64_t panel = 2 * tile_lines;  // 2 x 2 tiles of sums: four products for four loads

void store_sums(const ByteTile& tile, const std::int32_t (&sums)[4][tile_lines][tile_lines]) {
    auto* const d = static_cast<std::int32_t*>(tile.d);
    for (std::int64_t i = 0; i < tile.rows; ++i)
        for (std::int64_t j = 0; j < tile.cols; ++j)
            d[i * tile.leading + j] =
                sums[i / tile_lines * 2 + j / tile_lines][i % tile_lines][j % tile_lines];
}

void multiply_on_tiles(const ByteTile& tile) {
    const std::int64_t a_stride = tile.words * 4;
    const std::byte* const b = tile.b + panel * 4;  // behind what sums start from, which is 0
    zero_tile<0>();
    zero_tile<1>();
    zero_tile<2>();
    zero_tile<3>();
    for (std::int64_t word = 0; word < tile.words; word += tile_lines) {
        const std::byte *const rows = tile.a + word * 4, *const columns = b + word * panel * 4;
        load_tile<4>(rows, a_stride);
        load_tile<6>(columns, panel * 4);
        load_tile<7>(columns + tile_lines * 4, panel * 4);
        load_tile<5>(rows + tile_lines * a_stride, a_stride);
        multiply_tiles_s8<0, 4, 6>();
        multiply_tiles_s8<1, 4, 7>();
        multiply_tiles_s8<2, 5, 6>();
        multiply_tiles_s8<3, 5, 7>();
    }
    alignas(64) std::int32_t sums[4][tile_lines][tile_lines];
    store_tile<0>(sums[0], 64);
    store_tile<1>(sums[1], 64);
    store_tile<2>(sums[2], 64);
    store_tile<3>(sums[3], 64);
    store_sums(tile, sums);
}

}  // namespace

ByteKernel byte_kernel_amx() {
    return {.multiply = multiply_on_tiles,
            .begin = configure_tiles,
            .end = release_tiles,
            .height = panel,
            .width = panel,
            .word_unit = tile_lines,
            .rows_whole = true};
}

}  // namespace mantissa::on_cpu
