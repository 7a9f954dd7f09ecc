// BF16 products of AMX tiles. Compiled everywhere, but so far never run: the machine it was written on has
// none.
#include <immintrin.h>

#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::cpu {

namespace {

struct alignas(64) TileConfiguration {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

}  // namespace

double tile_loop_amx(std::int64_t rounds) {
    const TileConfiguration configuration;
    // GCC 12 takes the instruction to read 8 bytes only; the fence keeps the other stores before it.
    asm volatile("" ::"m"(configuration) : "memory");
    _tile_loadconfig(&configuration);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    // Two tiles of each operand, four of sums: every product but one in four has other operands.
    for (std::int64_t round = 0; round < rounds; ++round) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    return static_cast<double>(rounds) * 4 * 16 * 16 * 32 * 2;
}

}  // namespace mantissa::cpu
