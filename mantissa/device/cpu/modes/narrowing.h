// FP32 numbers stored in 8 bits, array by array: vector versions of mantissa/numerics/formats.h, with
// the same bits.
#pragma once

#include <cstdint>

#include "mantissa/device/cpu/isa.h"
#include "mantissa/device/cpu/modes/grouped_rows.h"

namespace mantissa::inline v0::on_cpu {

/// to[i] = to_s8(from[i] * factor), the product rounded to FP32.
using NarrowToS8 = void (*)(const float* from, float factor, std::int8_t* to, std::int64_t count);

/// `fours` times four groups of a row of x, from one to the next `stride`; the largest absolute value of a
/// group becomes 127.
using QuantizeFours = void (*)(const float* x, std::int64_t fours, FourOfX* to, std::int64_t stride);

NarrowToS8 narrow_to_s8(Isa isa);

#define MANTISSA_DECLARE(level)                                                                      \
    void narrow_to_s8_##level(const float* from, float factor, std::int8_t* to, std::int64_t count); \
    void quantize_fours_##level(const float* x, std::int64_t fours, FourOfX* to, std::int64_t stride);
MANTISSA_DECLARE(generic)
MANTISSA_DECLARE(avx2)
MANTISSA_DECLARE(avx512)
#undef MANTISSA_DECLARE

namespace {

struct RowScale {
    float factor, scale;
};

/// By which the largest absolute value becomes `most`, and back; both 0 for a row of zeros. Sizes are
/// compared as bits, so that it is a maximum of whole numbers; a NaN is larger than all else. With a sign,
/// since plain x86-64 compares no others in vectors.
inline RowScale scale_of(const float* x, std::int64_t count, float most) {
    std::int32_t bits = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        std::int32_t size;
        __builtin_memcpy(&size, x + i, sizeof size);
        size &= 0x7fffffff;
        bits = size > bits ? size : bits;
    }
    float largest;
    __builtin_memcpy(&largest, &bits, sizeof largest);
    return {largest == 0 ? 0 : most / largest, largest / most};
}

}  // namespace

}  // namespace mantissa::on_cpu
