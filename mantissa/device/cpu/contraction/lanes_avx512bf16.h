// Sixteen FP32 sums of dot products of BF16 pairs (vdpbf16ps): the twin of lanes_generic.h whose words hold
// two elements. Numerics: docs/numerics.md.
#pragma once

#include "mantissa/device/cpu/contraction/lanes_avx512.h"

namespace mantissa::inline v0::on_cpu {
namespace {

struct Avx512Bf16Lanes : Avx512Words {
    static constexpr int depth_of_word = 2;
    MANTISSA_PANEL_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        return _mm512_dpbf16_ps(sums, reinterpret_cast<__m512bh>(row), reinterpret_cast<__m512bh>(column));
    }
};

}  // namespace
}  // namespace mantissa::on_cpu
