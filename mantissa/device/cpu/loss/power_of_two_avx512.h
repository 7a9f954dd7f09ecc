// The AVX-512 that the fused linear cross-entropy needs besides lanes. In an anonymous namespace, so that
// each including file keeps its own copy.
#pragma once

#include "mantissa/device/cpu/rows/lanes_avx512.h"
// The lanes come first: this is written in terms of them.
#include "mantissa/numerics/elementary_body.h"

namespace mantissa::inline v0::on_cpu {
namespace {

MANTISSA_LANES bool any(Lanes::Mask mask) { return mask != 0; }

/// 2^floor(y) times 2^f, f between 0 and 1, by a polynomial: the minimax fit of relative error (Remez
/// exchange), its coefficients rounded as in elementary_coefficients.h. Error 7.6e-8. NaN and infinities come
/// through; what is too small is 0.
MANTISSA_LANES Lanes::Float power_of_two(Lanes::Float y) {
    static constexpr float series[] = {0x1.fffffep-1f, 0x1.62e4eap-1f, 0x1.ebd6c2p-3f,
                                       0x1.c949b8p-5f, 0x1.26bbd2p-7f, 0x1.ebaf42p-10f};
    constexpr Lanes operations{};
    const Lanes::Float f = _mm512_reduce_ps(y, 0x9);  // y - floor(y)
    return _mm512_scalef_ps(elementary::polynomial(operations, series, f), y);
}

}  // namespace
}  // namespace mantissa::on_cpu
