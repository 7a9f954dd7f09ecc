// FP32 numbers stored in 8 bits, array by array: vector versions of mantissa/numerics/formats.h, with
// the same bits.
#pragma once

#include <cstdint>

#include "mantissa/device/cpu/isa.h"

namespace mantissa::inline v0::on_cpu {

/// to[i] = to_s8(from[i] * factor), the product rounded to FP32.
using NarrowToS8 = void (*)(const float* from, float factor, std::int8_t* to, std::int64_t count);

NarrowToS8 narrow_to_s8(Isa isa);

void narrow_to_s8_generic(const float* from, float factor, std::int8_t* to, std::int64_t count);
void narrow_to_s8_avx2(const float* from, float factor, std::int8_t* to, std::int64_t count);
void narrow_to_s8_avx512(const float* from, float factor, std::int8_t* to, std::int64_t count);

}  // namespace mantissa::on_cpu
