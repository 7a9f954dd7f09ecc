// Bits, 32 to a word, their ones counted by vpopcntd: the twin of GenericB1Lanes.
#pragma once

#include "mantissa/device/cpu/modes/lanes_avx512.h"

namespace mantissa::inline v0::on_cpu {
namespace {

struct Avx512B1Lanes : Avx512IntegerLanes {
    static constexpr int depth_of_word = 32;
    MANTISSA_MODE_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        return _mm512_add_epi32(sums, _mm512_popcnt_epi32(_mm512_xor_si512(row, column)));
    }
};

}  // namespace
}  // namespace mantissa::on_cpu
