// exp, log, tanh, erf, sin and cos in FP32, written once over a set of operations `Ops`: a vector of some
// instruction set, one float, or a builder of instructions. The same operations in the same order give the
// same bits everywhere.
//
// Ops has the types Float, Int and Mask and the members used below: arithmetic rounds to nearest, fma(a, b,
// c) rounds a * b + c once, comparisons with NaN are false, select(mask, a, b) takes a where mask is set. Ops
// must be a type of an unnamed namespace, lest two instruction sets share one instantiation.
#pragma once

#include "mantissa/numerics/elementary_coefficients.h"

namespace mantissa::inline v0::elementary {

/// c0 + c1 x + c2 x^2 + ..., by Horner's rule.
template <class Ops, int Count>
[[gnu::always_inline]] inline typename Ops::Float polynomial(Ops& ops, const float (&c)[Count],
                                                             typename Ops::Float x) {
    typename Ops::Float sum = ops.constant(c[Count - 1]);
    for (int k = Count - 2; k >= 0; --k) sum = ops.fma(sum, x, ops.constant(c[k]));
    return sum;
}

/// exp without its special cases: for exp_least <= x <= exp_greatest.
template <class Ops>
[[gnu::always_inline]] inline typename Ops::Float exp_inside(Ops& ops, typename Ops::Float x) {
    const auto shifted = ops.fma(x, ops.constant(inverse_ln2), ops.constant(rounding_shift));
    const auto n = ops.subtract(shifted, ops.constant(rounding_shift));
    auto r = ops.fma(n, ops.constant(-ln2_high), x);
    r = ops.fma(n, ops.constant(-ln2_low), r);
    const auto series = ops.fma(polynomial(ops, exp_series, r), ops.multiply(r, r), r);
    const auto value = ops.add(series, ops.constant(1.0f));
    // n sits in the low bits of `shifted`; moved up by 23 it is added to the exponent.
    return ops.from_bits(ops.add_int(ops.bits(value), ops.template shift_left<23>(ops.bits(shifted))));
}

/// e^x. Results below the smallest normal number are zero. NaN gives NaN.
template <class Ops>
[[gnu::always_inline]] inline typename Ops::Float exp(Ops& ops, typename Ops::Float x) {
    auto y = exp_inside(ops, x);
    y = ops.select(ops.less(x, ops.constant(exp_least)), ops.constant(0.0f), y);
    y = ops.select(ops.less(ops.constant(exp_greatest), x), ops.constant(__builtin_inff()), y);
    return ops.select(ops.is_nan(x), x, y);
}

/// Natural logarithm. Subnormals count as zero, whose logarithm is -infinity; below zero the result is NaN.
template <class Ops>
[[gnu::always_inline]] inline typename Ops::Float log(Ops& ops, typename Ops::Float x) {
    const auto above_split = ops.add_int(ops.bits(x), ops.integer(-log_split_bits));
    const auto exponent = ops.template shift_right_signed<23>(above_split);
    const auto k = ops.to_float(exponent);
    // x / 2^exponent - 1, with x / 2^exponent between sqrt(1/2) and sqrt(2).
    const auto mantissa_bits =
        ops.add_int(ops.and_int(above_split, ops.integer(0x7fffff)), ops.integer(log_split_bits));
    const auto f = ops.subtract(ops.from_bits(mantissa_bits), ops.constant(1.0f));
    const auto square = ops.multiply(f, f);
    auto tail = ops.multiply(ops.multiply(f, square), polynomial(ops, log_series, f));
    tail = ops.fma(square, ops.constant(-0.5f), tail);
    tail = ops.fma(k, ops.constant(ln2_low), tail);
    auto y = ops.add(ops.fma(k, ops.constant(ln2_high), f), tail);
    y = ops.select(ops.less(x, ops.constant(0x1p-126f)), ops.constant(-__builtin_inff()), y);
    y = ops.select(ops.less(x, ops.constant(-0x1.fffffcp-127f)), ops.constant(__builtin_nanf("")), y);
    y = ops.select(ops.less(x, ops.constant(__builtin_inff())), y, x);  // infinity and NaN are kept
    return y;
}

/// Hyperbolic tangent, odd in every bit.
template <class Ops>
[[gnu::always_inline]] inline typename Ops::Float tanh(Ops& ops, typename Ops::Float x) {
    const auto sign = ops.and_int(ops.bits(x), ops.integer(static_cast<int>(0x80000000u)));
    const auto a = ops.from_bits(ops.and_int(ops.bits(x), ops.integer(0x7fffffff)));
    const auto square = ops.multiply(a, a);
    const auto near = ops.fma(ops.multiply(polynomial(ops, tanh_series, square), square), a, a);
    const auto e = exp_inside(ops, ops.minimum(ops.add(a, a), ops.constant(2 * tanh_one)));
    const auto quotient = ops.divide(ops.constant(2.0f), ops.add(e, ops.constant(1.0f)));
    const auto far = ops.subtract(ops.constant(1.0f), quotient);
    auto y = ops.select(ops.less(a, ops.constant(tanh_split)), near, far);
    y = ops.select(ops.less(a, ops.constant(tanh_one)), y, ops.constant(1.0f));
    y = ops.from_bits(ops.or_int(ops.bits(y), sign));
    return ops.select(ops.is_nan(x), x, y);
}

/// Error function, odd in every bit.
template <class Ops>
[[gnu::always_inline]] inline typename Ops::Float erf(Ops& ops, typename Ops::Float x) {
    const auto sign = ops.and_int(ops.bits(x), ops.integer(static_cast<int>(0x80000000u)));
    const auto a = ops.from_bits(ops.and_int(ops.bits(x), ops.integer(0x7fffffff)));
    const auto square = ops.multiply(a, a);
    const auto near = ops.fma(polynomial(ops, erf_series, square), a, a);
    const auto inside = ops.minimum(a, ops.constant(erf_one));
    const auto e = exp_inside(ops, ops.negate(polynomial(ops, erfc_log_series, inside)));
    const auto far = ops.subtract(ops.constant(1.0f), e);
    auto y = ops.select(ops.less(a, ops.constant(erf_split)), near, far);
    y = ops.select(ops.less(a, ops.constant(erf_one)), y, ops.constant(1.0f));
    y = ops.from_bits(ops.or_int(ops.bits(y), sign));
    return ops.select(ops.is_nan(x), x, y);
}

/// sin(x) for `quarters` = 0, cos(x) = sin(x + pi / 2) for 1, of x >= 0: NaN from circle_greatest on.
template <int quarters, class Ops>
[[gnu::always_inline]] inline typename Ops::Float circle(Ops& ops, typename Ops::Float x) {
    const auto shifted = ops.fma(x, ops.constant(inverse_half_pi), ops.constant(rounding_shift));
    const auto n = ops.subtract(shifted, ops.constant(rounding_shift));
    auto r = ops.fma(n, ops.constant(-half_pi_high), x);
    r = ops.fma(n, ops.constant(-half_pi_middle), r);
    r = ops.fma(n, ops.constant(-half_pi_low), r);
    const auto square = ops.multiply(r, r);
    const auto sine = ops.fma(ops.multiply(polynomial(ops, sin_series, square), square), r, r);
    const auto fourth =
        ops.fma(polynomial(ops, cos_series, square), ops.multiply(square, square), ops.constant(1.0f));
    const auto cosine = ops.fma(square, ops.constant(-0.5f), fourth);
    // n sits in the low bits of `shifted`: an odd quarter takes the other function, the third and fourth the
    // other sign.
    const auto quarter = ops.add_int(ops.bits(shifted), ops.integer(quarters));
    const auto is_odd = ops.less(ops.constant(0.5f), ops.to_float(ops.and_int(quarter, ops.integer(1))));
    const auto sign = ops.template shift_left<30>(ops.and_int(quarter, ops.integer(2)));
    const auto value = ops.bits(ops.select(is_odd, cosine, sine));
    // The sign bit is flipped where `sign` has it: the carry out of it is lost.
    const auto y = ops.from_bits(ops.add_int(value, sign));
    return ops.select(ops.less(x, ops.constant(circle_greatest)), y, ops.constant(__builtin_nanf("")));
}

/// Sine of |x| < circle_greatest, odd in every bit; NaN for larger |x|, infinities and NaN.
template <class Ops>
[[gnu::always_inline]] inline typename Ops::Float sin(Ops& ops, typename Ops::Float x) {
    const auto sign = ops.and_int(ops.bits(x), ops.integer(static_cast<int>(0x80000000u)));
    const auto a = ops.from_bits(ops.and_int(ops.bits(x), ops.integer(0x7fffffff)));
    return ops.from_bits(ops.add_int(ops.bits(circle<0>(ops, a)), sign));
}

/// Cosine of |x| < circle_greatest, even in every bit; NaN for larger |x|, infinities and NaN.
template <class Ops>
[[gnu::always_inline]] inline typename Ops::Float cos(Ops& ops, typename Ops::Float x) {
    return circle<1>(ops, ops.from_bits(ops.and_int(ops.bits(x), ops.integer(0x7fffffff))));
}

}  // namespace mantissa::elementary
