// Stochastic rounding: up or down at random, so that the expectation is the number itself. What nearest even
// would swallow, an update far below half a unit of a weight, then survives on average.
#pragma once

#include <bit>
#include <cstdint>

#include "mantissa/numerics/sixteen_bit.h"

namespace mantissa {

/// One of the two BF16 neighbours of `value`, each the likelier the nearer it is: `random` holds uniform
/// bits, of which the lower 16 count. What BF16 holds exactly stays. Beyond the largest value infinity takes
/// the place of 2^128. A NaN stays one, made quiet, as in to_bf16.
inline BF16 to_bf16_stochastic(float value, std::uint32_t random) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
    return {static_cast<std::uint16_t>((bits + (random & 0xffffu)) >> 16)};
}

}  // namespace mantissa
