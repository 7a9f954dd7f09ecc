// Bytes by dot products of four (vpdpbusd): the twin of GenericS8Lanes. The instruction takes the first
// operand for unsigned, so rows come 128 too large and sums begin at -128 times the sum of their column.
#pragma once

#include "mantissa/device/cpu/modes/lanes_avx512.h"

namespace mantissa::inline v0::on_cpu {
namespace {

struct Avx512S8Lanes : Avx512IntegerLanes {
    static constexpr int depth_of_word = 4;
    MANTISSA_MODE_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        return _mm512_dpbusd_epi32(sums, row, column);
    }
};

}  // namespace
}  // namespace mantissa::on_cpu
