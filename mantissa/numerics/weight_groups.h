// Weights in four bits: groups of neighbours of a row share a scale, which least squares choose.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "mantissa/numerics/sixteen_bit.h"

namespace mantissa::inline v0 {

constexpr std::int64_t weights_of_group = 32;

/// Number i stands for numbers[i] * scale; the scale may be negative.
struct WeightGroup {
    std::array<std::int8_t, weights_of_group> numbers = {};  ///< in -8 ... 7; 0 behind the last weight
    BF16 scale = {};
};

/// At most 32 weights. Some scales make the weight of the largest absolute value a number between -7 and -9;
/// each is replaced by the least-squares scale of its numbers. The scale with the smallest sum of squared
/// errors is rounded to BF16, and weights go to the nearest multiples of it. A group of zeros has scale 0; if
/// a weight is not finite, the scale is NaN.
WeightGroup group_of(std::span<const float> weights);

}  // namespace mantissa
