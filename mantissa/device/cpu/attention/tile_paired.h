// The block of sums in registers where a multiply-add takes two elements of BF16 (vdpbf16ps). See
// body_products.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/rows/lanes_avx512.h"

namespace mantissa::inline v0::on_cpu {
namespace {

// As for AVX-512; a multiply-add takes two elements, so that the same tile does twice the work.
struct Tile {
    static constexpr int rows = 8;
    static constexpr int vectors = 2;
    MANTISSA_LANES Lanes::Float multiply_add(Lanes::Float a, Lanes::Float b, Lanes::Float c) {
        return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
    }
};

}  // namespace
}  // namespace mantissa::on_cpu
