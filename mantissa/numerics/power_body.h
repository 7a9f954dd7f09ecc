// log(1 + x), e^x - 1 and x^y in FP32, over the operations of elementary_body.h, `floor` and `subtract_int`.
// Only generated code and scalar functions use them.
#pragma once

#include "mantissa/numerics/elementary_body.h"

namespace mantissa::inline v0::elementary {

/// Below this size log(1 + x) and e^x - 1 round to x.
inline constexpr float linear_below = 0x1p-25f;

template <class Ops>
[[gnu::always_inline]] inline typename Ops::Float magnitude(Ops& ops, typename Ops::Float x) {
    return ops.from_bits(ops.and_int(ops.bits(x), ops.integer(0x7fffffff)));
}

/// x = 2^exponent m with m between sqrt(1/2) and sqrt(2).
template <class Ops>
struct SplitFloat {
    typename Ops::Int exponent;
    typename Ops::Float m;
};

template <class Ops>
[[gnu::always_inline]] inline SplitFloat<Ops> split_at_one(Ops& ops, typename Ops::Float x) {
    const auto above = ops.add_int(ops.bits(x), ops.integer(-log_split_bits));
    const auto fraction = ops.add_int(ops.and_int(above, ops.integer(0x7fffff)), ops.integer(log_split_bits));
    return {ops.template shift_right_signed<23>(above), ops.from_bits(fraction)};
}

/// log(1 + x): the rounding error of 1 + x is added to its fraction. -1 gives -infinity, below it NaN.
template <class Ops>
[[gnu::always_inline]] inline typename Ops::Float log1p(Ops& ops, typename Ops::Float x) {
    const auto one = ops.constant(1.0f);
    const auto sum = ops.add(one, x);
    const auto from_x = ops.subtract(sum, one);
    const auto lost = ops.add(ops.subtract(one, ops.subtract(sum, from_x)), ops.subtract(x, from_x));
    const auto [exponent, m] = split_at_one(ops, sum);
    const auto k = ops.to_float(exponent);
    auto scale =
        ops.from_bits(ops.subtract_int(ops.integer(127 << 23), ops.template shift_left<23>(exponent)));
    scale = ops.select(ops.less(x, ops.constant(0x1p60f)), scale, ops.constant(0.0f));
    const auto f = ops.fma(lost, scale, ops.subtract(m, one));
    const auto square = ops.multiply(f, f);
    auto tail = ops.multiply(ops.multiply(f, square), polynomial(ops, log_series, f));
    tail = ops.fma(square, ops.constant(-0.5f), tail);
    tail = ops.fma(k, ops.constant(ln2_low), tail);
    auto y = ops.add(ops.fma(k, ops.constant(ln2_high), f), tail);
    y = ops.select(ops.less(x, ops.constant(-0x1.fffffep-1f)), ops.constant(-__builtin_inff()), y);
    y = ops.select(ops.less(x, ops.constant(-1.0f)), ops.constant(__builtin_nanf("")), y);
    y = ops.select(ops.less(magnitude(ops, x), ops.constant(linear_below)), x, y);
    return ops.select(ops.less(x, ops.constant(__builtin_inff())), y, x);  // infinity and NaN are kept
}

/// e^x - 1 = 2^n (e^r - 1) + 2^n - 1, at half the size, so that 2^128 does not occur on the way.
template <class Ops>
[[gnu::always_inline]] inline typename Ops::Float expm1(Ops& ops, typename Ops::Float x) {
    constexpr float least = -30, greatest = exp_greatest;  // from there on -1, and infinity
    auto inside = ops.minimum(x, ops.constant(greatest));
    inside = ops.select(ops.less(inside, ops.constant(least)), ops.constant(least), inside);
    const auto shifted = ops.fma(inside, ops.constant(inverse_ln2), ops.constant(rounding_shift));
    const auto n = ops.subtract(shifted, ops.constant(rounding_shift));
    auto r = ops.fma(n, ops.constant(-ln2_high), inside);
    r = ops.fma(n, ops.constant(-ln2_low), r);
    const auto series = ops.fma(polynomial(ops, exp_series, r), ops.multiply(r, r), r);
    const auto half = ops.from_bits(
        ops.add_int(ops.bits(ops.constant(0.5f)), ops.template shift_left<23>(ops.bits(shifted))));
    const auto value = ops.fma(half, series, ops.subtract(half, ops.constant(0.5f)));
    auto y = ops.add(value, value);
    y = ops.select(ops.less(ops.constant(greatest), x), ops.constant(__builtin_inff()), y);
    y = ops.select(ops.less(magnitude(ops, x), ops.constant(linear_below)), x, y);
    return ops.select(ops.is_nan(x), x, y);
}

/// A number as a sum of two, the second about 2^-24 of the first.
template <class Ops>
struct TwoFloats {
    typename Ops::Float high, low;
};

/// log(m) = 2 s + s^3 (c0 + c1 s^2 + ...), s = (m - 1) / (m + 1), sqrt(1/2) <= m < sqrt(2): the Taylor
/// series, whose rest is 5e-11 of the logarithm.
inline constexpr float log_ratio_series[] = {0x1.555556p-1f, 0x1.99999ap-2f, 0x1.24924ap-2f, 0x1.c71c72p-3f,
                                             0x1.745d18p-3f};
/// ln 2 in two parts, the first so short that its product with an exponent is exact.
inline constexpr float short_ln2 = 0x1.62e4p-1f, rest_of_ln2 = 0x1.7f7d1cp-20f;

/// log(x) to about 2^-29 of itself, of a normal positive number.
template <class Ops>
[[gnu::always_inline]] inline TwoFloats<Ops> long_log(Ops& ops, typename Ops::Float x) {
    const auto [exponent, m] = split_at_one(ops, x);
    const auto k = ops.to_float(exponent);
    const auto f = ops.subtract(m, ops.constant(1.0f));
    const auto two = ops.constant(2.0f);
    const auto d = ops.add(f, two);
    const auto inverse = ops.divide(ops.constant(1.0f), d);
    const auto s = ops.multiply(f, inverse);
    // The loss of the sum and the quotient, in the first term and in the next.
    auto rest = ops.fma(ops.negate(s), d, f);
    rest = ops.fma(ops.negate(s), ops.subtract(f, ops.subtract(d, two)), rest);
    const auto square = ops.multiply(s, s);
    auto tail = ops.multiply(ops.multiply(s, square), polynomial(ops, log_ratio_series, square));
    tail = ops.fma(k, ops.constant(rest_of_ln2), tail);
    tail = ops.fma(ops.fma(two, square, two), ops.multiply(rest, inverse), tail);
    const auto whole = ops.multiply(k, ops.constant(short_ln2));
    const auto twice = ops.add(s, s);
    const auto sum = ops.add(whole, twice);
    const auto low = ops.add(ops.subtract(twice, ops.subtract(sum, whole)), tail);
    const auto high = ops.add(sum, low);
    return {high, ops.subtract(low, ops.subtract(high, sum))};
}

/// a^y of a number a >= 0; 0, whose logarithm is -infinity, and infinity are as their limits. A number beyond
/// the exponential's range goes through it as any number, and is replaced.
template <class Ops>
[[gnu::always_inline]] inline typename Ops::Float power_of_positive(Ops& ops, typename Ops::Float a,
                                                                    typename Ops::Float y) {
    const auto zero = ops.constant(0.0f), infinity = ops.constant(__builtin_inff());
    TwoFloats<Ops> log = long_log(ops, a);
    log.high = ops.select(ops.less(a, ops.constant(0x1p-126f)), ops.negate(infinity), log.high);
    log.high = ops.select(ops.less(a, infinity), log.high, infinity);
    const auto high = ops.multiply(y, log.high);
    const auto low = ops.fma(y, log.low, ops.fma(y, log.high, ops.negate(high)));
    const auto e = exp_inside(ops, high);
    auto r = ops.fma(e, low, e);
    r = ops.select(ops.less(high, ops.constant(exp_least)), zero, r);
    return ops.select(ops.less(ops.constant(exp_greatest), high), infinity, r);
}

/// x^y as C has it: x^0 and 1^y are 1 even for NaN; negative x has powers for whole y alone, else NaN.
/// Subnormals count as zero.
template <class Ops>
[[gnu::always_inline]] inline typename Ops::Float pow(Ops& ops, typename Ops::Float x,
                                                      typename Ops::Float y) {
    const auto one = ops.constant(1.0f), infinity = ops.constant(__builtin_inff());
    const auto a = magnitude(ops, x);
    auto r = power_of_positive(ops, a, y);
    // (-1)^y for infinite y, too.
    r = ops.select(ops.less(a, one), r, ops.select(ops.less(one, a), r, one));
    const auto half = ops.multiply(y, ops.constant(0.5f));
    const auto sign = ops.and_int(ops.bits(x), ops.integer(static_cast<int>(0x80000000u)));
    const auto with_sign = ops.from_bits(ops.or_int(ops.bits(r), sign));
    const auto of_whole = ops.select(ops.less(ops.floor(half), half), with_sign, r);
    const auto none = ops.select(ops.less(ops.negate(infinity), x), ops.constant(__builtin_nanf("")), r);
    const auto of_broken = ops.select(ops.less(x, ops.constant(0.0f)), none, r);
    r = ops.select(ops.less(ops.floor(y), y), of_broken, of_whole);
    r = ops.select(ops.is_nan(x), x, ops.select(ops.is_nan(y), y, r));
    r = ops.select(ops.less(magnitude(ops, y), ops.constant(0x1p-126f)), one, r);
    const auto of_one = ops.select(ops.is_nan(x), r, one);
    return ops.select(ops.less(x, one), r, ops.select(ops.less(one, x), r, of_one));
}

}  // namespace mantissa::elementary
