// FP32 numbers stored in fewer bits, array by array: whole numbers of 8 and 4 bits, and signs. Vector
// versions of mantissa/numerics/integer_formats.h, with the same bits.
#pragma once

#include <cstdint>

#include "mantissa/device/cpu/isa.h"

namespace mantissa::inline v0::on_cpu {

struct NarrowingKernels {
    /// to[i] = to_s8(from[i] * factor), the product rounded to FP32.
    void (*to_s8)(const float* from, float factor, std::int8_t* to, std::int64_t count);
    /// The same to 4 bits, packed. Of an odd count, the last half byte is 0.
    void (*to_s4)(const float* from, float factor, std::uint8_t* to, std::int64_t count);
    /// Signs, packed. Of a count that is no multiple of 8, the last bits are 0.
    void (*to_b1)(const float* from, std::uint8_t* to, std::int64_t count);
};

const NarrowingKernels& narrowing_kernels(Isa isa);

const NarrowingKernels& narrowing_kernels_generic();
const NarrowingKernels& narrowing_kernels_avx2();
const NarrowingKernels& narrowing_kernels_avx512();

}  // namespace mantissa::on_cpu
