// Rotary positions: halves of each head turned against one another. See body_loops.h for how this file is
// used.
#pragma once

#include "mantissa/device/cpu/rows/body_loops.h"

namespace mantissa::inline v0::on_cpu {
namespace {

/// One head. Both halves are read before either is written, so that y may be x.
template <class T>
MANTISSA_LANES void turn_head(const T* x, T* y, const float* cosine, const float* sine, std::int64_t half,
                              bool stream) {
    for_lanes(half, [&](std::int64_t i, auto extent) MANTISSA_BODY {
        const Float first = load_ahead(x + i, extent), second = load_ahead(x + half + i, extent);
        const Float c = load(cosine + i, extent), s = load(sine + i, extent);
        store(y + i, Lanes::fma(first, c, Lanes::negate(Lanes::multiply(second, s))), extent, stream);
        store(y + half + i, Lanes::fma(second, c, Lanes::multiply(first, s)), extent, stream);
    });
}

void rotary_tokens(const Rotary& p, Range tokens, Stores stores) {
    const std::int64_t half = p.head_size / 2;
    with_type(p.x.type, [&](auto* type) {
        for (std::int64_t token = tokens.first; token < tokens.last; ++token) {
            const std::int64_t table = token % p.sequence * half;
            for (std::int64_t head = 0; head < p.heads; ++head) {
                const std::int64_t at = (token * p.heads + head) * p.head_size;
                auto* const y = as(p.y, type) + at;
                turn_head(as(p.x, type) + at, y, p.cosine + table, p.sine + table, half,
                          may_stream(stores, y) && may_stream(stores, y + half));
            }
        }
    });
    Lanes::fence();
}

}  // namespace
}  // namespace mantissa::on_cpu
