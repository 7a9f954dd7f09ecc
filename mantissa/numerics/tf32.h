// TF32, a way to multiply FP32 and no way to store: FP32 rounded to ten bits of fraction.
#pragma once

#include <bit>
#include <cstdint>

namespace mantissa::inline v0 {

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

}  // namespace mantissa
