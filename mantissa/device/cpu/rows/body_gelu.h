// The gradient of GELU in its tanh form. See body_loops.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_loops.h"
#include "mantissa/numerics/exp2_body.h"

namespace mantissa::inline v0::on_cpu {
namespace {

// The tanh form is written with 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2 u)), which does not cancel for negative
// x; exp(-2 u) is 2^y with y = x (linear + cubic x^2).
constexpr float gelu_slope = 1.5957691216057308f;  // 2 sqrt(2 / pi)
constexpr float gelu_cubic = 0.044715f;
constexpr float gelu_exponent = -gelu_slope * elementary::log2_e;
constexpr float gelu_exponent_cubic = gelu_exponent * gelu_cubic;

/// 1 + exp(-2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3), infinity where that overflows. At NaN a number of
/// no meaning: x comes in again.
MANTISSA_LONG_LANES Float inverse_gelu_gate(Float x, Float square) {
    const Float factor =
        Lanes::fma(square, Lanes::constant(gelu_exponent_cubic), Lanes::constant(gelu_exponent));
    return Lanes::add(Lanes::constant(1.0f), elementary::exp2(lanes, Lanes::multiply(x, factor)));
}

/// gate + x gate (1 - gate) 2 u', u' = sqrt(2 / pi) (1 + 3 * 0.044715 x^2).
MANTISSA_LANES Float gelu_slope_at(Float x) {
    const Float square = Lanes::multiply(x, x);
    const Float one = Lanes::constant(1.0f);
    const Float gate = Lanes::divide(one, inverse_gelu_gate(x, square));
    const Float inner =
        Lanes::fma(square, Lanes::constant(3 * gelu_cubic * gelu_slope), Lanes::constant(gelu_slope));
    const Float spread = Lanes::multiply(gate, Lanes::subtract(one, gate));
    return Lanes::fma(Lanes::multiply(x, inner), spread, gate);
}

template <class X, class DY>
void gelu_grad_range(const X* x, const DY* dy, X* dx, std::int64_t count, bool stream) {
    for_stored_lanes(dx, count, stream, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        const Float slope = gelu_slope_at(load_ahead(x + c, extent));
        return Lanes::multiply(slope, load_ahead(dy + c, extent));
    });
}

void gelu_grad_elements(const GeluGrad& p, Range range, Stores stores) {
    with_types(p.x.type, p.dy.type, [&](auto* x_type, auto* dy_type) {
        const auto* x = as(p.x, x_type) + range.first;
        const auto* dy = as(p.dy, dy_type) + range.first;
        auto* dx = as(p.dx, x_type) + range.first;
        const std::int64_t count = range.last - range.first;
        gelu_grad_range(x, dy, dx, count, may_stream(stores, dx));
    });
    Lanes::fence();
}

}  // namespace
}  // namespace mantissa::on_cpu
