// Storage in 8 and 4 bits: conversion, and how numbers of half a byte are packed. One number at a time;
// kernels have vector versions that agree with these bit for bit.
#pragma once

#include <cstdint>

namespace mantissa::inline v0 {

/// To the nearest whole number, ties to even, whatever the rounding mode of the moment; beyond -128 ... 127
/// the limit, infinities too. A NaN gives 0.
std::int8_t to_s8(float value);

// Number `index` of a packed array, -8 ... 7: the first lies in the lowest bits of the first byte.
std::int8_t s4_at(const std::uint8_t* packed, std::int64_t index);
void set_s4(std::uint8_t* packed, std::int64_t index, std::int8_t value);

}  // namespace mantissa
