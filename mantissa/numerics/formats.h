// The storage formats as bits: conversion, limits and spacing; how numbers of half a byte are packed. One
// number at a time; kernels have vector versions of the same conversions, which agree with these bit for bit.
#pragma once

#include <bit>
#include <cstdint>

#include "mantissa/numerics/dtype.h"
#include "mantissa/numerics/sixteen_bit.h"

namespace mantissa::inline v0 {

/// TF32, a way to multiply FP32 and no way to store: FP32 rounded to ten bits of fraction.
/// To nearest, ties to even; toward zero where that would overflow, since FP32's finite numbers stay finite.
/// Infinities stay; a NaN stays one, made quiet. The same bits as the operands of TF32 contractions have.
inline float to_tf32(float value) {
    constexpr std::uint32_t cut = 0x1fffu, magnitude = 0x7fffffffu, infinity = 0x7f800000u;
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & magnitude) > infinity) return std::bit_cast<float>((bits | 0x00400000u) & ~cut);
    const std::uint32_t rounded = bits + (cut >> 1) + ((bits >> 13) & 1u);
    const bool overflows = (rounded & magnitude) >= infinity;
    return std::bit_cast<float>((overflows ? bits : rounded) & ~cut);
}

/// Rounds to nearest, ties to even. Beyond the largest value gives infinity; a NaN stays one, made quiet,
/// with its sign and the upper bits of its payload. Subnormals are kept.
inline BF16 to_bf16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
    return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

/// Exact.
inline float to_f32(BF16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }

/// As to_bf16: nearest even, infinity beyond 65519.99, quiet NaNs, subnormals kept.
FP16 to_fp16(float value);

/// Exact; a signalling NaN is made quiet.
float to_f32(FP16 value);

/// Limits of a floating-point format.
struct FormatLimits {
    int bits;           ///< of storage
    int exponent_bits;  ///<
    int fraction_bits;  ///< stored, without the implicit one
    double max;         ///< largest finite value
    double min_normal;
    double min_subnormal;
    double epsilon;  ///< distance from 1 to the next larger value, 2^-fraction_bits
};

/// Throws InternalError for a type that is not floating.
const FormatLimits& limits_of(DType type);

/// The value of the format that is nearest to `value` (ties to even), in one rounding; infinity beyond the
/// range.
double rounded_to(double value, DType type);

/// Distance between neighbouring values of the format at the magnitude of `value`: one ULP. At and below the
/// smallest normal it is the spacing of subnormals; infinite or NaN values give NaN.
double ulp_at(double value, DType type);

/// Element `index` of an array of the type, floating or integer, as a double. I64 beyond 2^53 is rounded.
double load_as_f64(const void* data, DType type, std::int64_t index);

/// Stores `value` rounded once to the floating type.
void store_from_f64(void* data, DType type, std::int64_t index, double value);

/// To the nearest whole number, ties to even, whatever the rounding mode of the moment; beyond -128 ... 127
/// the limit, infinities too. A NaN gives 0.
std::int8_t to_s8(float value);

// Number `index` of a packed array, -8 ... 7: the first lies in the lowest bits of the first byte.
std::int8_t s4_at(const std::uint8_t* packed, std::int64_t index);
void set_s4(std::uint8_t* packed, std::int64_t index, std::int8_t value);

}  // namespace mantissa
