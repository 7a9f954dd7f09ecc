#include "mantissa/numerics/short_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "mantissa/base/error.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0 {

namespace {

constexpr std::array formats = {ShortFormat::e4m3, ShortFormat::e5m2, ShortFormat::e3m2,
                                ShortFormat::e2m3, ShortFormat::e2m1, ShortFormat::int8};

constexpr std::array<ShortLimits, formats.size()> limits = {{
    {"e4m3", 8, 4, 3, -6, 8, 448.0f, true},
    {"e5m2", 8, 5, 2, -14, 15, 57344.0f, true},
    {"e3m2", 6, 3, 2, -2, 4, 28.0f, false},
    {"e2m3", 6, 2, 3, 0, 2, 7.5f, false},
    {"e2m1", 4, 2, 1, 0, 2, 6.0f, false},
    // The grid of whole numbers is a format whose numbers are all subnormal.
    {"int8", 8, 0, 6, 0, 0, 127.0f / 64.0f, false},
}};

constexpr std::uint32_t exponent_field = 0x7f800000u, fraction_field = 0x007fffffu, one = 0x3f800000u;

/// Distance of neighbouring values at a finite magnitude, a power of two.
double unit_at(const ShortLimits& of, double magnitude) {
    const int exponent = magnitude == 0 ? of.min_exponent : std::ilogb(magnitude);
    return std::ldexp(1.0, std::clamp(exponent, of.min_exponent, of.max_exponent) - of.fraction_bits);
}

/// `round`: a whole number from a magnitude in units.
template <class Round>
float on_grid(const ShortLimits& of, float value, Round round) {
    if (std::isnan(value)) return value;
    const double magnitude = std::min(std::fabs(static_cast<double>(value)), static_cast<double>(of.max));
    const double unit = unit_at(of, magnitude);
    return static_cast<float>(std::copysign(round(magnitude / unit) * unit, static_cast<double>(value)));
}

}  // namespace

float ShortLimits::min_normal() const {
    return exponent_bits == 0 ? min_subnormal() : std::ldexp(1.0f, min_exponent);
}
float ShortLimits::min_subnormal() const { return std::ldexp(1.0f, min_exponent - fraction_bits); }

const ShortLimits& limits_of(ShortFormat format) { return limits[static_cast<std::size_t>(format)]; }
std::span<const ShortFormat> short_formats() { return formats; }

ShortFormat find_short_format(std::string_view name) {
    for (const ShortFormat format : formats)
        if (limits_of(format).name == name) return format;
    if (name.ends_with("fnuz"))
        throw UserError(fmt::format(
            "'{}' is AMD's form of MI300, whose largest number and NaN are others than OCP's: it is not "
            "among the formats; take e4m3 or e5m2",
            name));
    throw UserError(
        fmt::format("there is no format '{}'; there are e4m3, e5m2, e3m2, e2m3, e2m1, int8", name));
}

float value_of(ShortFormat format, std::uint8_t code) {
    const ShortLimits& of = limits_of(format);
    if (format == ShortFormat::int8) return static_cast<float>(static_cast<std::int8_t>(code)) / 64.0f;
    const int sign = code >> (of.bits - 1) & 1;
    const int exponent = code >> of.fraction_bits & ((1 << of.exponent_bits) - 1);
    const int fraction = code & ((1 << of.fraction_bits) - 1);
    const bool top = exponent == (1 << of.exponent_bits) - 1;
    float magnitude = 0;
    if (format == ShortFormat::e5m2 && top)
        magnitude =
            fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    else if (format == ShortFormat::e4m3 && top && fraction == 7)
        magnitude = std::numeric_limits<float>::quiet_NaN();
    else if (exponent == 0)
        magnitude = std::ldexp(static_cast<float>(fraction), of.min_exponent - of.fraction_bits);
    else
        magnitude = std::ldexp(static_cast<float>((1 << of.fraction_bits) + fraction),
                               of.min_exponent + exponent - 1 - of.fraction_bits);
    return sign ? -magnitude : magnitude;
}

float rounded_to(ShortFormat format, float value) {
    return on_grid(limits_of(format), value, [](double units) {
        const double floor = std::floor(units), above = units - floor;
        const bool up = above > 0.5 || (above == 0.5 && std::fmod(floor, 2.0) != 0.0);
        return floor + (up ? 1.0 : 0.0);
    });
}

float rounded_to(ShortFormat format, float value, std::uint32_t random) {
    return on_grid(limits_of(format), value, [random](double units) {
        const double floor = std::floor(units);
        return floor + ((random >> 8) * 0x1p-24 < units - floor ? 1.0 : 0.0);
    });
}

std::uint8_t code_of(ShortFormat format, float value) {
    const ShortLimits& of = limits_of(format);
    if (std::isnan(value)) {
        const int nan = (1 << (of.bits - 1)) - 1;
        return of.has_nan ? static_cast<std::uint8_t>(nan | (std::signbit(value) ? 0x80 : 0))
                          : code_of(format, of.max);
    }
    const double rounded = static_cast<double>(rounded_to(format, value));
    const double magnitude = std::fabs(rounded);
    if (format == ShortFormat::int8)
        return static_cast<std::uint8_t>(static_cast<std::int8_t>(std::lround(rounded * 64)));
    const double unit = unit_at(of, magnitude);
    const auto units = static_cast<int>(magnitude / unit);
    // Codes of one sign count up through subnormals and binades alike.
    const int binade = units < 1 << of.fraction_bits ? 0 : std::ilogb(magnitude) - of.min_exponent;
    const int code = (binade << of.fraction_bits) + units;
    return static_cast<std::uint8_t>(code | (std::signbit(value) ? 1 << (of.bits - 1) : 0));
}

std::string_view name_of(ScaleRule rule) {
    static constexpr std::array<std::string_view, 4> names = {"up", "floor", "tensor", "two-level"};
    return names[static_cast<std::size_t>(rule)];
}

ScaleRule find_scale_rule(std::string_view name) {
    for (const ScaleRule rule : {ScaleRule::up, ScaleRule::floor, ScaleRule::tensor, ScaleRule::two_level})
        if (name_of(rule) == name) return rule;
    throw UserError(
        fmt::format("there is no rule '{}' for scales; there are up, floor, tensor, two-level", name));
}

double value_of_e8m0(std::uint8_t code) {
    return code == 255 ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, code - 127);
}

std::uint8_t e8m0_of(ShortFormat element, float largest, ScaleRule rule) {
    const ShortLimits& of = limits_of(element);
    const auto code = [](int exponent) { return static_cast<std::uint8_t>(std::clamp(exponent, 0, 254)); };
    const auto bits = std::bit_cast<std::uint32_t>(largest) & 0x7fffffffu;
    if (bits >= exponent_field) return 255;
    if (bits <= fraction_field) return 0;  // subnormal numbers are zeros
    if (rule == ScaleRule::floor) return code(static_cast<int>(bits >> 23) - of.max_exponent);
    // One FP32 product, then its exponent, one more if any bit of its fraction is set. The factor is the
    // fraction alone, so never subnormal: threads that flush subnormals would have another scale.
    const float fraction = std::bit_cast<float>((bits & fraction_field) | one);
    const auto share = std::bit_cast<std::uint32_t>(fraction * (1.0f / of.max));
    return code(static_cast<int>(bits >> 23) - 127 + static_cast<int>((share + fraction_field) >> 23));
}

namespace {

constexpr float most = std::numeric_limits<float>::max();

float scale_to(float top, float largest) {
    if (!(largest > 0) || std::isinf(largest)) return 1;
    return std::min(top / largest, most);
}

}  // namespace

float tensor_scale(ShortFormat element, float largest) { return scale_to(limits_of(element).max, largest); }

float two_level_tensor_scale(float largest) {
    return scale_to(limits_of(ShortFormat::e4m3).max * limits_of(ShortFormat::e2m1).max, largest);
}

TwoLevelScale two_level_scale(float largest_of_block, float tensor) {
    const float decode = rounded_to(ShortFormat::e4m3, largest_of_block * (tensor * (1.0f / 6.0f)));
    const float encode = 1.0f / (decode * (1.0f / tensor));
    return {.decode = decode, .encode = std::min(encode, most)};
}

std::uint32_t rounding_bits(const RandomStream& stream, std::int64_t row, std::int64_t column,
                            std::int64_t columns) {
    constexpr std::int64_t lanes = 16, words = 4, group = lanes * words;
    const std::int64_t groups = (columns + group - 1) / group;
    const std::int64_t block = (row * groups + column / group) * lanes + column % lanes;
    return stream.block(static_cast<std::uint64_t>(block))[static_cast<std::size_t>(column / lanes % words)];
}

void hadamard(std::span<float, hadamard_size> numbers) {
    static constexpr std::array<float, hadamard_size> signs = {1,  1,  1,  -1, 1,  -1, -1, -1,
                                                               -1, -1, -1, 1,  -1, 1,  -1, -1};
    for (std::size_t i = 0; i < hadamard_size; ++i) numbers[i] *= signs[i];
    for (std::size_t half = 1; half < hadamard_size; half *= 2)
        for (std::size_t i = 0; i < hadamard_size; ++i) {
            if (i & half) continue;
            const float a = numbers[i], b = numbers[i + half];
            numbers[i] = a + b;
            numbers[i + half] = a - b;
        }
    for (float& x : numbers) x = static_cast<float>(rounded_to(static_cast<double>(x * 0.25f), DType::bf16));
}

}  // namespace mantissa
