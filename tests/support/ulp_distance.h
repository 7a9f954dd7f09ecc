// How many steps from one number of a format to another: the distance in units of the last place that needs
// no magnitude to be named.
#pragma once

#include <cstdint>

#include "mantissa/numerics/sixteen_bit.h"

namespace mantissa::inline v0 {

/// Steps from one number of the format to its neighbour, as many as lead from a to b. +0 and -0 are one
/// number; infinity follows the largest. A NaN is as far as can be from everything, itself included.
std::uint64_t ulp_distance(double a, double b);
std::uint64_t ulp_distance(float a, float b);
std::uint64_t ulp_distance(FP16 a, FP16 b);
std::uint64_t ulp_distance(BF16 a, BF16 b);

inline constexpr std::uint64_t ulp_distance_of_nan = UINT64_MAX;

}  // namespace mantissa
