#include "mantissa/numerics/formats.h"

#include <cmath>
#include <limits>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {

constexpr FormatLimits f64_limits = {64,        11,        52,     std::numeric_limits<double>::max(),
                                     0x1p-1022, 0x1p-1074, 0x1p-52};
constexpr FormatLimits f32_limits = {32, 8, 23, 0x1.fffffep127, 0x1p-126, 0x1p-149, 0x1p-23};
constexpr FormatLimits f16_limits = {16, 5, 10, 65504.0, 0x1p-14, 0x1p-24, 0x1p-10};
constexpr FormatLimits bf16_limits = {16, 8, 7, 0x1.fep127, 0x1p-126, 0x1p-133, 0x1p-7};

template <class T>
T element(const void* data, std::int64_t index) {
    return static_cast<const T*>(data)[index];
}

template <class T>
void set_element(void* data, std::int64_t index, T value) {
    static_cast<T*>(data)[index] = value;
}

/// Nearest even without regard to the rounding mode of the moment. `value` is at most 2^52.
double nearest_integer(double value) {
    const double floor = std::floor(value);
    const double above = value - floor;
    if (above > 0.5 || (above == 0.5 && std::fmod(floor, 2.0) != 0.0)) return floor + 1.0;
    return floor;
}

}  // namespace

FP16 to_fp16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return {static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu))};
    // 65520 lies halfway between the largest value and the one that would follow it, and rounds away.
    if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};
    if (magnitude < 0x33000000u) return {static_cast<std::uint16_t>(sign)};  // below 2^-25: zero
    const std::uint32_t exponent = magnitude >> 23;
    if (exponent >= 113) {  // normal in FP16: 127 - 14
        const std::uint32_t rebased = magnitude - (112u << 23);
        return {static_cast<std::uint16_t>(sign | ((rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13))};
    }
    // Subnormal: the fraction with its implicit one, shifted down to units of 2^-24.
    const std::uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
    const std::uint32_t shift = 126 - exponent;  // 14 ... 24
    const std::uint32_t whole = significand >> shift;
    const std::uint32_t rest = significand & ((1u << shift) - 1u);
    const std::uint32_t half = 1u << (shift - 1);
    const bool up = rest > half || (rest == half && (whole & 1u));
    return {static_cast<std::uint16_t>(sign | (whole + (up ? 1u : 0u)))};
}

float to_f32(FP16 value) {
    const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
    const std::uint32_t exponent = (value.bits >> 10) & 0x1fu;
    const std::uint32_t fraction = value.bits & 0x3ffu;
    if (exponent == 31) {
        const std::uint32_t quiet = fraction ? 0x400000u : 0u;
        return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13) | quiet);
    }
    if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (fraction << 13));
    if (fraction == 0) return std::bit_cast<float>(sign);
    // A subnormal is normal in FP32: shift until the leading one is the implicit bit.
    const int shift = std::countl_zero(fraction) - 21;
    const std::uint32_t normal = (fraction << shift) & 0x3ffu;
    return std::bit_cast<float>(sign | (static_cast<std::uint32_t>(113 - shift) << 23) | (normal << 13));
}

const FormatLimits& limits_of(DType type) {
    switch (type) {
        case DType::f64:
            return f64_limits;
        case DType::f32:
            return f32_limits;
        case DType::f16:
            return f16_limits;
        case DType::bf16:
            return bf16_limits;
        default:
            throw InternalError("limits_of: the type is not a floating-point format");
    }
}

double ulp_at(double value, DType type) {
    const FormatLimits& limits = limits_of(type);
    if (!std::isfinite(value)) return std::numeric_limits<double>::quiet_NaN();
    const double magnitude = std::fabs(value);
    if (magnitude <= limits.min_normal) return limits.min_subnormal;
    const int exponent = std::ilogb(std::fmin(magnitude, limits.max));
    return std::ldexp(1.0, exponent - limits.fraction_bits);
}

double rounded_to(double value, DType type) {
    const FormatLimits& limits = limits_of(type);
    if (type == DType::f64 || !std::isfinite(value) || value == 0.0) return value;
    const double unit = ulp_at(value, type);
    const double rounded = nearest_integer(std::fabs(value) / unit) * unit;
    const double kept = rounded > limits.max ? std::numeric_limits<double>::infinity() : rounded;
    return std::copysign(kept, value);
}

double load_as_f64(const void* data, DType type, std::int64_t index) {
    switch (type) {
        case DType::f64:
            return element<double>(data, index);
        case DType::f32:
            return static_cast<double>(element<float>(data, index));
        case DType::f16:
            return static_cast<double>(to_f32(element<FP16>(data, index)));
        case DType::bf16:
            return static_cast<double>(to_f32(element<BF16>(data, index)));
        case DType::i64:
            return static_cast<double>(element<std::int64_t>(data, index));
        case DType::i32:
            return static_cast<double>(element<std::int32_t>(data, index));
        case DType::s8:
            return static_cast<double>(element<std::int8_t>(data, index));
        case DType::u8:
        case DType::boolean:
            return static_cast<double>(element<std::uint8_t>(data, index));
    }
    throw InternalError("load_as_f64: unknown type");
}

void store_from_f64(void* data, DType type, std::int64_t index, double value) {
    // Once rounded to the format, the conversion by way of FP32 is exact.
    const auto rounded = static_cast<float>(type == DType::f64 ? 0.0 : rounded_to(value, type));
    switch (type) {
        case DType::f64:
            return set_element(data, index, value);
        case DType::f32:
            return set_element(data, index, rounded);
        case DType::f16:
            return set_element(data, index, to_fp16(rounded));
        case DType::bf16:
            return set_element(data, index, to_bf16(rounded));
        default:
            throw InternalError("store_from_f64: the type is not a floating-point format");
    }
}

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
