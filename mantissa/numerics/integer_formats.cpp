#include "mantissa/numerics/integer_formats.h"

#include <cmath>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0 {

namespace {

constexpr IntegerLimits s8_limits = {8, -128, 127};
constexpr IntegerLimits s4_limits = {4, -8, 7};
constexpr IntegerLimits b1_limits = {1, 0, 1};

std::int8_t nearest_within(float value, const IntegerLimits& limits) {
    if (std::isnan(value)) return 0;
    if (value >= static_cast<float>(limits.max)) return static_cast<std::int8_t>(limits.max);
    if (value <= static_cast<float>(limits.min)) return static_cast<std::int8_t>(limits.min);
    const float floor = std::floor(value);
    const auto whole = static_cast<int>(floor);
    const float above = value - floor;  // exact: both are small
    const bool up = above > 0.5f || (above == 0.5f && whole % 2 != 0);
    return static_cast<std::int8_t>(whole + (up ? 1 : 0));
}

}  // namespace

const IntegerLimits& limits_of(IntegerFormat format) {
    switch (format) {
        case IntegerFormat::s8:
            return s8_limits;
        case IntegerFormat::s4:
            return s4_limits;
        case IntegerFormat::b1:
            return b1_limits;
    }
    throw InternalError("limits_of: unknown format of whole numbers");
}

std::size_t packed_bytes(IntegerFormat format, std::int64_t count) {
    check(count >= 0, "packed_bytes: a count below 0");
    const int in_byte = 8 / limits_of(format).bits;
    return static_cast<std::size_t>(ceil_div(count, in_byte));
}

std::int8_t to_s8(float value) { return nearest_within(value, s8_limits); }

std::int8_t to_s4(float value) { return nearest_within(value, s4_limits); }

bool to_b1(float value) { return std::signbit(value); }

std::int8_t s4_at(const std::uint8_t* packed, std::int64_t index) {
    const int half = packed[index / 2] >> (index % 2 * 4) & 0xf;
    return static_cast<std::int8_t>((half ^ 8) - 8);
}

void set_s4(std::uint8_t* packed, std::int64_t index, std::int8_t value) {
    const int shift = static_cast<int>(index % 2) * 4;
    std::uint8_t& byte = packed[index / 2];
    byte = static_cast<std::uint8_t>((byte & ~(0xf << shift)) | (value & 0xf) << shift);
}

bool b1_at(const std::uint8_t* packed, std::int64_t index) {
    return (packed[index / 8] >> (index % 8) & 1) != 0;
}

void set_b1(std::uint8_t* packed, std::int64_t index, bool value) {
    const int bit = static_cast<int>(index % 8);
    std::uint8_t& byte = packed[index / 8];
    byte = static_cast<std::uint8_t>((byte & ~(1 << bit)) | (value ? 1 : 0) << bit);
}

}  // namespace mantissa
