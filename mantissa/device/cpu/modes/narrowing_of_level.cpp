// Narrowing to bytes, sixteen numbers at a time, and groups of them for products of four bits.
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

void MANTISSA_OF_LEVEL(quantize_fours)(const float* x, std::int64_t fours, FourOfX* to, std::int64_t stride) {
    typedef std::int8_t Bytes __attribute__((vector_size(32)));
    typedef std::int8_t Half __attribute__((vector_size(16)));
    typedef std::int16_t Shorts __attribute__((vector_size(32)));
    constexpr std::int64_t words = words_together / groups_together;
    for (std::int64_t group = 0; group < fours * groups_together; ++group, x += sizeof(Bytes)) {
        FourOfX& four = to[group / groups_together * stride];
        const std::int64_t first = group % groups_together * words;
        const RowScale scale = scale_of(x, sizeof(Bytes), 127.0f);
        Bytes numbers;
        MANTISSA_OF_LEVEL(narrow_to_s8)
        (x, scale.factor, reinterpret_cast<std::int8_t*>(&numbers), sizeof numbers);
        const Half even = __builtin_shufflevector(numbers, numbers, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22,
                                                  24, 26, 28, 30);
        const Half odd = __builtin_shufflevector(numbers, numbers, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23,
                                                 25, 27, 29, 31);
        __builtin_memcpy(four.even + first * 4, &even, sizeof even);
        __builtin_memcpy(four.odd + first * 4, &odd, sizeof odd);
        const Shorts twos = __builtin_convertvector(even, Shorts) + __builtin_convertvector(odd, Shorts);
        for (std::int64_t word = 0; word < words; ++word) {
            const std::int64_t at = 4 * word;
            four.corrections[first + word] = -8 * (twos[at] + twos[at + 1] + twos[at + 2] + twos[at + 3]);
            four.scales[first + word] = scale.scale;
        }
    }
}

}  // namespace mantissa::on_cpu
