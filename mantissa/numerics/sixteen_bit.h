// The 16-bit formats as types of their own, so that a pointer names its format. No functions here: files
// compiled for one instruction set include this header.
#pragma once

#include <cstdint>

namespace mantissa::inline v0 {

/// 1 sign, 8 exponent, 7 fraction bits: FP32 cut short.
struct BF16 {
    std::uint16_t bits;
};

/// 1 sign, 5 exponent, 10 fraction bits (IEEE 754 binary16).
struct FP16 {
    std::uint16_t bits;
};

}  // namespace mantissa
