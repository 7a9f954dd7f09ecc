// exp, log, tanh, erf, sin and cos in FP32, written once over a set of operations `Ops`: a vector of some
// instruction set, one float, or a builder of instructions. The same operations in the same order give the
// same bits everywhere.
//
// Ops has the types Float, Int and Mask and the members used below: arithmetic rounds to nearest, fma(a, b,
// c) rounds a * b + c once, comparisons with NaN are false, select(mask, a, b) takes a where mask is set. Ops
// must be a type of an unnamed namespace, lest two instruction sets share one instantiation.
//
// One set of coefficients for all. Each polynomial is a minimax fit of relative error (Remez exchange), its
// coefficients rounded to FP32 one after another from the lowest, the rest fitted again after each. The error
// of the rounded polynomial alone stands beside it; half an ULP of FP32 is 6e-8.
#pragma once

namespace mantissa::inline v0::elementary {

/// ln 2 in two FP32 parts, and its inverse.
inline constexpr float ln2_high = 0x1.62e430p-1f;
inline constexpr float ln2_low = -0x1.05c610p-29f;
inline constexpr float inverse_ln2 = 0x1.715476p+0f;

/// Adding and subtracting 1.5 * 2^23 rounds a number below 2^22 to the nearest integer, which the low bits of
/// the sum then hold.
inline constexpr float rounding_shift = 0x1.8p23f;

/// exp(r) = 1 + r + r^2 (c0 + c1 r + ...), |r| <= ln2 / 2. Error 3.2e-9.
inline constexpr float exp_series[] = {0x1.fffffcp-2f, 0x1.55548cp-3f, 0x1.555858p-5f, 0x1.123de0p-7f,
                                       0x1.6ac710p-10f};
/// The greatest argument with a finite result, and the least with a normal one.
inline constexpr float exp_greatest = 0x1.62e42ep6f;
inline constexpr float exp_least = -0x1.5d589ep6f;

/// log(1 + f) = f - f^2 / 2 + f^3 (c0 + c1 f + ...), sqrt(1/2) <= 1 + f < sqrt(2). Error 3.2e-9.
inline constexpr float log_series[] = {0x1.555548p-2f,  -0x1.000070p-2f, 0x1.99a542p-3f,
                                       -0x1.552f10p-3f, 0x1.23040ep-3f,  -0x1.0100b8p-3f,
                                       0x1.efa286p-4f,  -0x1.bf53f2p-4f, 0x1.b90e86p-5f};
/// The bits of sqrt(1/2) in FP32.
inline constexpr int log_split_bits = 0x3f3504f3;

/// tanh(x) = x + x^3 (c0 + c1 x^2 + ...), |x| < 0.625. Error 4.5e-9. Above: 1 - 2 / (exp(2 |x|) + 1).
inline constexpr float tanh_series[] = {-0x1.555532p-2f, 0x1.1106f6p-3f, -0x1.b835a4p-5f, 0x1.51f8cep-6f,
                                        -0x1.750ce2p-8f};
inline constexpr float tanh_split = 0.625f;
/// The limit from which on tanh rounds to 1.
inline constexpr float tanh_one = 9.02f;

/// erf(x) = x + x (c0 + c1 x^2 + ...), |x| < 0.92. Error 8.9e-10.
inline constexpr float erf_series[] = {0x1.06eba8p-3f, -0x1.812740p-2f,  0x1.ce2d64p-4f, -0x1.b80118p-6f,
                                       0x1.5449e4p-8f, -0x1.a606c2p-11f, 0x1.4f562ep-14f};
inline constexpr float erf_split = 0.92f;
/// -log(erfc(a)) = c0 + c1 a + ..., 0.91 <= a <= 4; erf = 1 - exp of its negative. Error 1.2e-10 of erf.
inline constexpr float erfc_log_series[] = {-0x1.68a762p-13f, 0x1.212708p+0f,  0x1.44498ap-1f,
                                            0x1.bb64fap-4f,   -0x1.9b3e24p-6f, 0x1.10e06ep-8f,
                                            -0x1.c5fdacp-12f, 0x1.5fc054p-16f};
/// The limit from which on erf rounds to 1.
inline constexpr float erf_one = 4.0f;

/// pi / 2 in three FP32 parts, and its inverse. The difference of a number and the multiple of the first part
/// beside it is exact. So the three parts leave only the error of two roundings, however close the number is
/// to a multiple of pi / 2.
inline constexpr float half_pi_high = 0x1.921fb6p+0f;
inline constexpr float half_pi_middle = -0x1.777a5cp-25f;
inline constexpr float half_pi_low = -0x1.ee59dap-50f;
inline constexpr float inverse_half_pi = 0x1.45f306p-1f;
/// Below this the nearest multiple of pi / 2 is found within 0.02: the rest is at most 0.82.
inline constexpr float circle_greatest = 0x1p20f;

/// sin(r) = r + r^3 (c0 + c1 r^2 + ...), |r| <= 0.82. Error 5.5e-9.
inline constexpr float sin_series[] = {-0x1.555540p-3f, 0x1.110540p-7f, -0x1.989cb8p-13f};
/// cos(r) = 1 - r^2 / 2 + r^4 (c0 + c1 r^2 + ...), |r| <= 0.82. Error 2.0e-10.
inline constexpr float cos_series[] = {0x1.555546p-5f, -0x1.6c09cep-10f, 0x1.9941eep-16f};

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
