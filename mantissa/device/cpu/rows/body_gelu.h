// GELU, in its tanh form and its exact form, and the gradients. See body_loops.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_loops.h"
#include "mantissa/device/cpu/rows/body_softmax.h"
#include "mantissa/numerics/elementary_body.h"

namespace mantissa::cpu {
namespace {

// 2 sqrt(2 / pi) and the cubic's coefficient. The tanh form is written with 0.5 (1 + tanh(u)) = 1 / (1 +
// exp(-2 u)), which does not cancel for negative x.
constexpr float gelu_slope = 1.5957691216057308f;
constexpr float gelu_cubic = 0.044715f;

/// 1 / (1 + exp(-2 u)) with u = sqrt(2 / pi) (x + 0.044715 x^3).
MANTISSA_LONG_LANES Float gelu_gate(Float x) {
    const Float square = Lanes::multiply(x, x);
    const Float inner = Lanes::fma(Lanes::multiply(Lanes::constant(gelu_cubic), square), x, x);
    // Clamped to where exp needs no special cases: beyond, the gate is 1, or a subnormal that is flushed. The
    // order of arguments lets a NaN through; what exp_inside makes of it does not matter, since x comes in
    // again.
    const Float argument = Lanes::multiply(inner, Lanes::constant(-gelu_slope));
    const Float below = Lanes::minimum(Lanes::constant(elementary::exp_greatest), argument);
    const Float e =
        elementary::exp_inside(lanes, Lanes::maximum(Lanes::constant(elementary::exp_least), below));
    return Lanes::divide(Lanes::constant(1.0f), Lanes::add(Lanes::constant(1.0f), e));
}

/// (1 + erf(x / sqrt(2))) / 2.
MANTISSA_LONG_LANES Float normal_distribution(Float x) {
    const Float e = elementary::erf(lanes, Lanes::multiply(x, Lanes::constant(0.70710678118654752f)));
    return Lanes::fma(e, Lanes::constant(0.5f), Lanes::constant(0.5f));
}

struct GeluTanh {
    MANTISSA_LANES Float value(Float x) { return Lanes::multiply(x, gelu_gate(x)); }
    /// gate + x gate (1 - gate) 2 u', u' = sqrt(2 / pi) (1 + 3 * 0.044715 x^2).
    MANTISSA_LANES Float slope(Float x) {
        const Float gate = gelu_gate(x);
        const Float square = Lanes::multiply(x, x);
        const Float inner =
            Lanes::fma(square, Lanes::constant(3 * gelu_cubic * gelu_slope), Lanes::constant(gelu_slope));
        const Float spread = Lanes::multiply(gate, Lanes::subtract(Lanes::constant(1.0f), gate));
        return Lanes::fma(Lanes::multiply(x, inner), spread, gate);
    }
};

struct GeluExact {
    MANTISSA_LANES Float value(Float x) { return Lanes::multiply(x, normal_distribution(x)); }
    /// Phi(x) + x phi(x).
    MANTISSA_LANES Float slope(Float x) {
        const Float half_square = Lanes::multiply(Lanes::multiply(x, x), Lanes::constant(-0.5f));
        const Float density = Lanes::multiply(exp_of(half_square), Lanes::constant(0.39894228040143268f));
        return Lanes::fma(x, density, normal_distribution(x));
    }
};

template <class Form, class X, class Y>
void gelu_range(const X* x, Y* y, std::int64_t count, bool stream) {
    for_lanes(count, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        store(y + c, Form::value(load_ahead(x + c, extent)), extent, stream);
    });
}

template <class Form, class X, class DY>
void gelu_grad_range(const X* x, const DY* dy, X* dx, std::int64_t count, bool stream) {
    for_lanes(count, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        const Float slope = Form::slope(load_ahead(x + c, extent));
        store(dx + c, Lanes::multiply(slope, load_ahead(dy + c, extent)), extent, stream);
    });
}

void gelu_elements(const Gelu& p, Range range, Stores stores) {
    with_types(p.x.type, p.y.type, [&](auto* x_type, auto* y_type) {
        const auto* x = as(p.x, x_type) + range.first;
        auto* y = as(p.y, y_type) + range.first;
        const std::int64_t count = range.last - range.first;
        if (p.form == GeluForm::tanh)
            gelu_range<GeluTanh>(x, y, count, may_stream(stores, y));
        else
            gelu_range<GeluExact>(x, y, count, may_stream(stores, y));
    });
    Lanes::fence();
}

void gelu_grad_elements(const GeluGrad& p, Range range, Stores stores) {
    with_types(p.x.type, p.dy.type, [&](auto* x_type, auto* dy_type) {
        const auto* x = as(p.x, x_type) + range.first;
        const auto* dy = as(p.dy, dy_type) + range.first;
        auto* dx = as(p.dx, x_type) + range.first;
        const std::int64_t count = range.last - range.first;
        if (p.form == GeluForm::tanh)
            gelu_grad_range<GeluTanh>(x, dy, dx, count, may_stream(stores, dx));
        else
            gelu_grad_range<GeluExact>(x, dy, dx, count, may_stream(stores, dx));
    });
    Lanes::fence();
}

}  // namespace
}  // namespace mantissa::cpu
