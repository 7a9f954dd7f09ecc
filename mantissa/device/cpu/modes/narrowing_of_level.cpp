// Narrowing to bytes as arithmetic that a compiler finds lanes for at every level.
#include "mantissa/device/cpu/modes/narrowing.h"

namespace mantissa::inline v0::on_cpu {

void MANTISSA_OF_LEVEL(narrow_to_s8)(const float* from, float factor, std::int8_t* to, std::int64_t count) {
    // Beside so large a number one has no bits for fractions: the sum is rounded to nearest, ties to even,
    // and holds the byte in its lowest bits.
    constexpr float rounding_shift = 12582912;  // 1.5 * 2^23
    for (std::int64_t i = 0; i < count; ++i) {
        const float scaled = from[i] * factor;
        const float number = scaled == scaled ? scaled : 0.0f;  // NaN: 0
        const float above = number < -128.0f ? -128.0f : number;
        const float shifted = (above > 127.0f ? 127.0f : above) + rounding_shift;
        std::int32_t bits;
        __builtin_memcpy(&bits, &shifted, sizeof bits);
        to[i] = static_cast<std::int8_t>(bits);
    }
}

}  // namespace mantissa::on_cpu
