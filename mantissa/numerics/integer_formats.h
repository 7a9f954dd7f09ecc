// Storage in 8, 4 and 1 bits: limits, conversion, and how numbers shorter than a byte are packed. One number
// at a time; kernels have vector versions that agree with these bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mantissa::inline v0 {

enum class IntegerFormat : std::uint8_t {
    s8,  ///< -128 ... 127
    s4,  ///< -8 ... 7, two to a byte
    b1,  ///< 0 or 1, eight to a byte; as a number of a matrix it may stand for +1 and -1
};

/// What a format of whole numbers can hold.
struct IntegerLimits {
    int bits;  ///< of storage, so 8 / bits numbers lie in a byte
    int min;
    int max;
};

const IntegerLimits& limits_of(IntegerFormat format);

/// Bytes that hold so many packed numbers.
std::size_t packed_bytes(IntegerFormat format, std::int64_t count);

/// To the nearest whole number, ties to even, whatever the rounding mode of the moment; beyond the limits the
/// limit, infinities too. A NaN gives 0.
std::int8_t to_s8(float value);
std::int8_t to_s4(float value);

/// The sign: 1 for negative numbers, -0 and NaN with a sign, else 0.
bool to_b1(float value);

// Number `index` of a packed array: the first lies in the lowest bits of the first byte.
std::int8_t s4_at(const std::uint8_t* packed, std::int64_t index);
void set_s4(std::uint8_t* packed, std::int64_t index, std::int8_t value);  ///< value in -8 ... 7
bool b1_at(const std::uint8_t* packed, std::int64_t index);
void set_b1(std::uint8_t* packed, std::int64_t index, bool value);

}  // namespace mantissa
