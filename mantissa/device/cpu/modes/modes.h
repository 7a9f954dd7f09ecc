// The matrix modes by name. No functions here: files compiled for one instruction set include this header.
#pragma once

#include <cstdint>

namespace mantissa::inline v0::on_cpu {

enum class MatrixMode : std::uint8_t {
    f64,              ///< summed in FP64
    f16,              ///< summed in FP16
    s8,               ///< summed in 32 bits, as all that follow
    s4,               ///< packed as in mantissa/numerics/integer_formats.h, as all that follow
    b1_exclusive_or,  ///< the sum counts the places in which two rows differ
    b1_conjunction,   ///< the sum counts the places in which both hold a one
};

/// What stands for the product of two bits; the sum counts the ones.
enum class BitProduct : std::uint8_t { exclusive_or, conjunction };

}  // namespace mantissa::on_cpu
