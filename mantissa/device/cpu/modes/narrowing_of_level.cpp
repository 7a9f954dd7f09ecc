// Narrowing to bytes, sixteen numbers at a time.
#include "mantissa/device/cpu/rows/lanes_of_level.h"
// The lanes come first: loops are written in terms of them.
#include "mantissa/device/cpu/modes/narrowing.h"
#include "mantissa/device/cpu/rows/body_loops.h"

namespace mantissa::inline v0::on_cpu {

void MANTISSA_OF_LEVEL(narrow_to_s8)(const float* from, float factor, std::int8_t* to, std::int64_t count) {
    const Float factors = Lanes::constant(factor), zero = Lanes::constant(0.0f);
    const Float least = Lanes::constant(-128), greatest = Lanes::constant(127);
    // Beside so large a number one has no bits for fractions: the sum is rounded to nearest, ties to even.
    const Float rounding_shift = Lanes::constant(12582912);  // 1.5 * 2^23
    for_lanes(count, [&](std::int64_t i, auto extent) MANTISSA_BODY {
        const Float scaled = Lanes::multiply(load(from + i, extent), factors);
        const Float number = Lanes::select(Lanes::is_nan(scaled), zero, scaled);
        const Float within = Lanes::minimum(Lanes::maximum(number, least), greatest);
        const Float whole = Lanes::subtract(Lanes::add(within, rounding_shift), rounding_shift);
        // Lanes store bytes from 0 to 255: 128 more, which the upper bit is taken off again with.
        alignas(16) std::uint8_t bytes[16];
        Lanes::store(bytes, Lanes::subtract(whole, least), 16);
        for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(byte ^ 0x80);
        __builtin_memcpy(to + i, bytes, static_cast<std::size_t>(lanes_in(extent)));
    });
}

}  // namespace mantissa::on_cpu
