// Sixteen sums of dot products of four bytes (vpdpbusd): the twin of GenericS8Lanes. The instruction takes
// one operand for unsigned: bytes of b come 128 too large.
#pragma once

#include "mantissa/device/cpu/contraction/lanes_avx512.h"

namespace mantissa::inline v0::on_cpu {
namespace {

struct Avx512S8Lanes : Avx512Words {
    static constexpr int depth_of_word = 1;
    MANTISSA_PANEL_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        return _mm512_castsi512_ps(_mm512_dpbusd_epi32(_mm512_castps_si512(sums), column, row));
    }
    MANTISSA_PANEL_LANES Sums add(Sums a, Sums b) {
        return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
    }
};

}  // namespace
}  // namespace mantissa::on_cpu
