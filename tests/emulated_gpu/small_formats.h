// Numbers of few bits, FP16, BF16, TF32 and the FP8s, from and to FP64, rounded once in any of PTX's
// directions.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace mantissa::inline v0::cuda::ptx {

enum class Rounding { nearest, zero, down, up, away };  ///< away: to nearest, ties away from zero

/// `value` on the grid of multiples of 2^`exponent`. Exact but for the rounding: the grid is coarser than
/// FP64's there, or the value is on it.
inline double on_grid(double value, int exponent, Rounding rounding) {
    const double scaled = std::ldexp(value, -exponent);
    double whole = 0;
    switch (rounding) {
        case Rounding::nearest: {
            whole = std::floor(scaled);
            const double rest = scaled - whole;
            if (rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2.0) != 0)) whole += 1;
            break;
        }
        case Rounding::zero:
            whole = std::trunc(scaled);
            break;
        case Rounding::down:
            whole = std::floor(scaled);
            break;
        case Rounding::up:
            whole = std::ceil(scaled);
            break;
        case Rounding::away:
            whole = scaled < 0 ? -std::floor(0.5 - scaled) : std::floor(scaled + 0.5);
            break;
    }
    return std::copysign(std::ldexp(whole, exponent), value);
}

struct SmallFormat {
    int fraction_bits = 0;
    int min_exponent = 0;  ///< of the normal numbers
    double largest = 0;
};

constexpr SmallFormat format_fp16{10, -14, 65504};
constexpr SmallFormat format_bf16{7, -126, 0x1.fep127};
constexpr SmallFormat format_tf32{10, -126, 0x1.ffcp127};
constexpr SmallFormat format_e4m3{3, -6, 448};
constexpr SmallFormat format_e5m2{2, -14, 57344};
constexpr SmallFormat format_fp32{23, -126, 0x1.fffffep127};

/// The number of the format; infinity, or the largest number where the direction says so, beyond its range.
inline double rounded(double value, const SmallFormat& format, Rounding rounding) {
    if (!std::isfinite(value) || value == 0) return value;
    const int exponent = std::max(std::ilogb(value), format.min_exponent) - format.fraction_bits;
    const double there = on_grid(value, exponent, rounding);
    if (std::fabs(there) <= format.largest) return there;
    const bool inwards = rounding == Rounding::zero || (rounding == Rounding::down && value > 0) ||
                         (rounding == Rounding::up && value < 0);
    return std::copysign(inwards ? format.largest : HUGE_VAL, value);
}

/// The bits of a number that is of the format. A NaN is `nan`.
inline std::uint32_t bits_of_format(double value, const SmallFormat& format, int bits, std::uint32_t nan) {
    if (std::isnan(value)) return nan;
    const std::uint32_t sign = std::signbit(value) ? std::uint32_t{1} << (bits - 1) : 0;
    const int exponent_bits = bits - 1 - format.fraction_bits;
    if (std::isinf(value)) return sign | ((std::uint32_t{1} << exponent_bits) - 1) << format.fraction_bits;
    const double size = std::fabs(value);
    if (size < std::ldexp(1.0, format.min_exponent))
        return sign |
               static_cast<std::uint32_t>(std::ldexp(size, format.fraction_bits - format.min_exponent));
    const int exponent = std::ilogb(size);
    const auto fraction =
        static_cast<std::uint32_t>(std::ldexp(size, format.fraction_bits - exponent));  // with the leading 1
    return sign |
           ((static_cast<std::uint32_t>(exponent - format.min_exponent) << format.fraction_bits) + fraction);
}

/// The number that bits stand for; not for those with all exponent bits set.
inline double value_of_bits(std::uint32_t bits, const SmallFormat& format, int width) {
    const bool negative = (bits >> (width - 1) & 1) != 0;
    const std::uint32_t size = bits & ((std::uint32_t{1} << (width - 1)) - 1);
    const std::uint32_t exponent = size >> format.fraction_bits;
    const std::uint32_t fraction = size & ((std::uint32_t{1} << format.fraction_bits) - 1);
    const double value =
        exponent == 0
            ? std::ldexp(fraction, format.min_exponent - format.fraction_bits)
            : std::ldexp(fraction + (std::uint32_t{1} << format.fraction_bits),
                         static_cast<int>(exponent) - 1 + format.min_exponent - format.fraction_bits);
    return negative ? -value : value;
}

/// `.ftz`: subnormal numbers are zeros.
inline float flush(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

inline float half_to_float(std::uint16_t bits) {
    if ((bits & 0x7c00) == 0x7c00) {
        const std::uint32_t sign = std::uint32_t(bits & 0x8000) << 16;
        return std::bit_cast<float>(bits & 0x3ff ? std::uint32_t{0x7fffffff} : sign | 0x7f800000);
    }
    return static_cast<float>(value_of_bits(bits, format_fp16, 16));
}

inline float bf16_to_float(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

/// Every NaN is 0x7fff.
inline std::uint16_t to_half(double value, Rounding rounding = Rounding::nearest) {
    return static_cast<std::uint16_t>(
        bits_of_format(rounded(value, format_fp16, rounding), format_fp16, 16, 0x7fff));
}
inline std::uint16_t to_bf16_bits(double value, Rounding rounding = Rounding::nearest) {
    return static_cast<std::uint16_t>(
        bits_of_format(rounded(value, format_bf16, rounding), format_bf16, 16, 0x7fff));
}

}  // namespace mantissa::cuda::ptx
