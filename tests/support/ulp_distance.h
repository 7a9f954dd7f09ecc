// The number of steps between two numbers of a format: a distance in units of the last place that needs no
// magnitude.
#pragma once

#include <cstdint>

#include "mantissa/numerics/sixteen_bit.h"

namespace mantissa::inline v0 {

/// Steps between neighbouring numbers of the format from a to b. +0 and -0 are one number; infinity follows
/// the largest. A NaN has the largest distance from everything, itself included.
std::uint64_t ulp_distance(double a, double b);
std::uint64_t ulp_distance(float a, float b);
std::uint64_t ulp_distance(FP16 a, FP16 b);
std::uint64_t ulp_distance(BF16 a, BF16 b);

inline constexpr std::uint64_t ulp_distance_of_nan = UINT64_MAX;

}  // namespace mantissa
