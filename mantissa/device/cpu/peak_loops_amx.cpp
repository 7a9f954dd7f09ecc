// Products of AMX tiles of BF16 and of bytes.
#include <array>
#include <cstddef>
#include <cstdint>

#include "mantissa/device/cpu/amx_tiles.h"
#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t tile_bytes = 1024;

/// Operands of four tiles: BF16 numbers of both signs between 1 and 2, with random fractions. Products of
/// zeros draw less power, so the clock is higher: a core of a Xeon reached 5.7 TFLOP/s on zeros and 4.7 on
/// these.
alignas(64) constexpr auto operands = [] {
    std::array<std::uint16_t, 4 * tile_bytes / 2> numbers{};
    std::uint32_t state = 1;
    for (std::uint16_t& number : numbers) {
        state = state * 1664525 + 1013904223;  // Numerical Recipes' linear congruence
        number = static_cast<std::uint16_t>(0x3f80 | (state >> 16 & 0x807f));
    }
    return numbers;
}();

void begin_tiles() {
    configure_tiles();
    zero_tile<0>();
    zero_tile<1>();
    zero_tile<2>();
    zero_tile<3>();
    const auto* const bytes = reinterpret_cast<const std::byte*>(operands.data());
    load_tile<4>(bytes, 64);
    load_tile<5>(bytes + tile_bytes, 64);
    load_tile<6>(bytes + 2 * tile_bytes, 64);
    load_tile<7>(bytes + 3 * tile_bytes, 64);
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
