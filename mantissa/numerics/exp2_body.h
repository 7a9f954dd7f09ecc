// 2^y, for row kernels and generated code that need an exponential of a product: with log2(e) in the factor,
// y is exact where e^x would need two steps to reduce its argument. Over the operations of elementary_body.h.
#pragma once

#include <iterator>

#include "mantissa/numerics/elementary_body.h"

namespace mantissa::inline v0::elementary {

/// 2^r = 1 + r (c0 + c1 r + ...), |r| <= 1/2. A minimax fit like those of elementary_body.h.
/// Error 3.0e-9.
inline constexpr float exp2_series[] = {0x1.62e430p-1f, 0x1.ebfbdcp-3f,  0x1.c6af7cp-5f,
                                        0x1.3b2de0p-7f, 0x1.5f0830p-10f, 0x1.416b5cp-13f};
/// Between these the result is finite and normal.
inline constexpr float exp2_least = -126, exp2_greatest = 127;
/// Here the sum of exponents is zero's, and infinity's: exp2_inside gives these, with no test.
inline constexpr float exp2_zero = -127, exp2_infinite = 128;
inline constexpr float log2_e = 1.4426950408889634f;

/// 2^y / 2^n, where n sits in the low bits of `shifted`: y, rounded to a whole number.
template <class Ops>
[[gnu::always_inline]] inline typename Ops::Float exp2_of_rest(Ops& ops, typename Ops::Float y,
                                                               typename Ops::Float shifted) {
    const auto r = ops.subtract(y, ops.subtract(shifted, ops.constant(rounding_shift)));
    return ops.fma(polynomial(ops, exp2_series, r), r, ops.constant(1.0f));
}

/// For exp2_least <= y <= exp2_greatest.
template <class Ops>
[[gnu::always_inline]] inline typename Ops::Float exp2_inside(Ops& ops, typename Ops::Float y) {
    const auto shifted = ops.add(y, ops.constant(rounding_shift));
    const auto value = exp2_of_rest(ops, y, shifted);
    return ops.from_bits(ops.add_int(ops.bits(value), ops.template shift_left<23>(ops.bits(shifted))));
}

/// 1 + 2^y for exp2_least <= y <= exp2_greatest, and NaN for NaN. The power of two is a factor, made by one
/// shift of a number that has its biased exponent in the low bits. The bias is one less than FP32's, so that
/// it is even, as rounding to a whole number wants it; the missing factor is in the series.
template <class Ops>
[[gnu::always_inline]] inline typename Ops::Float one_plus_exp2(Ops& ops, typename Ops::Float y) {
    constexpr float shift = rounding_shift + 126;
    float twice[std::size(exp2_series)];
    for (std::size_t k = 0; k < std::size(exp2_series); ++k) twice[k] = 2 * exp2_series[k];
    const auto shifted = ops.add(y, ops.constant(shift));
    const auto r = ops.subtract(y, ops.subtract(shifted, ops.constant(shift)));
    const auto rest = ops.fma(polynomial(ops, twice, r), r, ops.constant(2.0f));
    const auto half_power = ops.from_bits(ops.template shift_left<23>(ops.bits(shifted)));
    return ops.fma(rest, half_power, ops.constant(1.0f));
}

/// e^x for x <= 0, which softmax needs: the rounding of the exponent, at most 126, weighs little where the
/// result is small. A NaN stays NaN without a test, since the power of two is a factor.
template <class Ops>
[[gnu::always_inline]] inline typename Ops::Float exp_up_to_zero(Ops& ops, typename Ops::Float x) {
    const auto y = ops.maximum(ops.constant(exp2_zero), ops.multiply(x, ops.constant(log2_e)));
    const auto shifted = ops.add(y, ops.constant(rounding_shift));
    const auto power = ops.add_int(ops.template shift_left<23>(ops.bits(shifted)), ops.integer(0x3f800000));
    return ops.multiply(exp2_of_rest(ops, y, shifted), ops.from_bits(power));
}

/// 2^y for y <= exp2_greatest, which is not tested. From exp2_zero down it is zero. Between exp2_zero and
/// exp2_least it is subnormal, so zero to code that flushes subnormals. NaN gives a number of no meaning: the
/// caller takes care of NaN.
template <class Ops>
[[gnu::always_inline]] inline typename Ops::Float exp2_below(Ops& ops, typename Ops::Float y) {
    return exp2_inside(ops, ops.maximum(ops.constant(exp2_zero), y));
}

/// 2^y for every y: from exp2_infinite up it is infinity.
template <class Ops>
[[gnu::always_inline]] inline typename Ops::Float exp2(Ops& ops, typename Ops::Float y) {
    return exp2_below(ops, ops.minimum(ops.constant(exp2_infinite), y));
}

}  // namespace mantissa::elementary
