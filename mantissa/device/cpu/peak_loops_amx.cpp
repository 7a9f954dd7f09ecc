// Products of AMX tiles of BF16 and of bytes.
#include "mantissa/device/cpu/amx_tiles.h"
#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::inline v0::on_cpu {

namespace {

void begin_tiles() {
    configure_tiles();
    zero_tile<0>();
    zero_tile<1>();
    zero_tile<2>();
    zero_tile<3>();
    zero_tile<4>();
    zero_tile<5>();
    zero_tile<6>();
    zero_tile<7>();
}

}  // namespace

double tile_loop_amx(std::int64_t rounds) {
    begin_tiles();
    // Four tiles of sums in flight, each product with another pair of operands.
    for (std::int64_t round = 0; round < rounds; ++round) {
        multiply_tiles_bf16<0, 4, 6>();
        multiply_tiles_bf16<1, 4, 7>();
        multiply_tiles_bf16<2, 5, 6>();
        multiply_tiles_bf16<3, 5, 7>();
    }
    release_tiles();
    return static_cast<double>(rounds) * 4 * 16 * 16 * 32 * 2;
}

double s8_tile_loop_amx(std::int64_t rounds) {
    begin_tiles();
    for (std::int64_t round = 0; round < rounds; ++round) {
        multiply_tiles_s8<0, 4, 6>();
        multiply_tiles_s8<1, 4, 7>();
        multiply_tiles_s8<2, 5, 6>();
        multiply_tiles_s8<3, 5, 7>();
    }
    release_tiles();
    return static_cast<double>(rounds) * 4 * 16 * 16 * 64 * 2;
}

}  // namespace mantissa::on_cpu
