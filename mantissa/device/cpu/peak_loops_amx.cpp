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

template <bool Bytes, int Sums, int A, int B>
void multiply_pair() {
    if constexpr (Bytes)
        multiply_tiles_s8<Sums, A, B>();
    else
        multiply_tiles_bf16<Sums, A, B>();
}

constexpr double operations_of_pair = 16 * 16 * 32 * 2;  // in BF16; twice as many in bytes

/// Four tiles of sums in flight, each product with another pair of operands.
template <bool Bytes>
double tile_loop(std::int64_t rounds) {
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
    for (std::int64_t round = 0; round < rounds; ++round) {
        multiply_pair<Bytes, 0, 4, 6>();
        multiply_pair<Bytes, 1, 4, 7>();
        multiply_pair<Bytes, 2, 5, 6>();
        multiply_pair<Bytes, 3, 5, 7>();
    }
    release_tiles();
    return static_cast<double>(rounds) * 4 * (Bytes ? 2 : 1) * operations_of_pair;
}

}  // namespace

FormatUnit bf16_unit_amx() { return {tile_loop<false>, operations_of_pair, 1, "tdpbf16ps, tiles"}; }
FormatUnit s8_unit_amx() { return {tile_loop<true>, 2 * operations_of_pair, 1, "tdpbssd, tiles"}; }

}  // namespace mantissa::on_cpu
