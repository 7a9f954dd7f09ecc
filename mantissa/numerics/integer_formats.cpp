#include "mantissa/numerics/integer_formats.h"

#include <cmath>

namespace mantissa::inline v0 {

std::int8_t to_s8(float value) {
    if (std::isnan(value)) return 0;
    if (value >= 127) return 127;
    if (value <= -128) return -128;
    const float floor = std::floor(value);
    const auto whole = static_cast<int>(floor);
    const float above = value - floor;  // exact: both are small
    const bool up = above > 0.5f || (above == 0.5f && whole % 2 != 0);
    return static_cast<std::int8_t>(whole + (up ? 1 : 0));
}

std::int8_t s4_at(const std::uint8_t* packed, std::int64_t index) {
    const int half = packed[index / 2] >> (index % 2 * 4) & 0xf;
    return static_cast<std::int8_t>((half ^ 8) - 8);
}

void set_s4(std::uint8_t* packed, std::int64_t index, std::int8_t value) {
    const int shift = static_cast<int>(index % 2) * 4;
    std::uint8_t& byte = packed[index / 2];
    byte = static_cast<std::uint8_t>((byte & ~(0xf << shift)) | (value & 0xf) << shift);
}

}  // namespace mantissa
