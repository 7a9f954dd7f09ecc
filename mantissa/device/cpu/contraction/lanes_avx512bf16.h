// Sixteen FP32 sums of dot products of BF16 pairs (vdpbf16ps): the twin of lanes_generic.h whose words hold
// two elements. Numerics: docs/numerics.md.
#pragma once

#include "mantissa/device/cpu/contraction/lanes_avx512.h"

namespace mantissa::inline v0::on_cpu {
namespace {

struct Avx512Bf16Lanes : Avx512Sums {
    static constexpr int depth_of_word = 2;
    static constexpr int rows_broadcast_by_fma = 0;
    using Words = __m512i;

    MANTISSA_PANEL_LANES Words load_words(const std::byte* panel) { return _mm512_loadu_si512(panel); }
    MANTISSA_PANEL_LANES Words broadcast(const std::byte* word) {
        std::int32_t pair;
        __builtin_memcpy(&pair, word, sizeof pair);
        return _mm512_set1_epi32(pair);
    }
    MANTISSA_PANEL_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        return _mm512_dpbf16_ps(sums, reinterpret_cast<__m512bh>(row), reinterpret_cast<__m512bh>(column));
    }
    MANTISSA_PANEL_LANES Sums multiply_add_broadcast(const std::byte* row, Words column, Sums sums) {
        return multiply_add(broadcast(row), column, sums);
    }
};

}  // namespace
}  // namespace mantissa::on_cpu
