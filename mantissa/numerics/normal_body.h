// The normal distribution's function and the slope of the exact GELU made of it, for row kernels: in pieces,
// since one polynomial over the whole range costs twice the multiplications and an exponential four times as
// many. Over the operations of elementary_body.h and lookup(table, index), which is table[index mod 8] in
// each lane.
//
// Both are 1/2 plus something odd that ends at 1/2. On each of eight intervals around n times a width, n = 0
// ... 7, the odd part is a polynomial of the distance from there; column n of a table has its coefficients,
// c0 first. They are minimax fits of absolute error, rounded to FP32 like those of elementary_coefficients.h.
// At the end of the range the last one gives 1/2 to the bit.
#pragma once

#include "mantissa/numerics/elementary_coefficients.h"

namespace mantissa::inline v0::elementary {

/// Phi(a) - 1/2, 0 <= a <= 6. Error 3.3e-8, and in FP32 4.3e-8.
inline constexpr float normal_width = 0.8125f, normal_end = 6.0f;
inline constexpr float normal_series[7][8] = {
    {0, 0x1.2abfe2p-2f, 0x1.caab34p-2f, 0x1.f86d8cp-2f, 0x1.ff68bcp-2f, 0x1.fff9a2p-2f, 0x1.ffffdcp-2f,
     0x1p-1f},
    {0x1.98842ep-2f, 0x1.25ab74p-2f, 0x1.b46198p-4f, 0x1.4f1856p-6f, 0x1.09f38ep-9f, 0x1.b44e9ep-14f,
     0x1.71e58ep-19f, 0x1.444e1ap-25f},
    {0, -0x1.dd35f6p-4f, -0x1.628f3p-4f, -0x1.986576p-6f, -0x1.b010eap-9f, -0x1.b8147ep-13f, -0x1.f992b2p-18f,
     -0x1.afe8a2p-21f},
    {-0x1.103b94p-4f, -0x1.0a4e54p-6f, 0x1.dd2adp-6f, 0x1.14114ap-6f, 0x1.a7dfp-9f, 0x1.19b7aep-12f,
     0x1.5e481ep-17f, 0x1.a22d38p-23f},
    {0, 0x1.740144p-6f, 0x1.546fbap-9f, -0x1.908b38p-8f, -0x1.120aeep-9f, -0x1.10fe7ap-12f, 0x1.84fa2p-20f,
     0x1.7096f2p-17f},
    {0x1.3bd63p-7f, -0x1.268472p-10f, -0x1.4ee86cp-8f, 0x1.8bb6c2p-12f, 0x1.c4744ep-11f, 0x1.4902dep-13f,
     0x1.5a5d34p-17f, 0x1.49b864p-22f},
    {0, -0x1.6a21cap-9f, 0x1.07d59ap-10f, 0x1.4f6d1cp-11f, -0x1.1ec18ep-13f, 0x1.04d906p-16f, -0x1.eeaa2p-15f,
     -0x1.7ed076p-15f},
};

/// Phi(a) + a phi(a) - 1/2, 0 <= a <= 6.25: the slope of x Phi(x). Error 1.7e-8, and in FP32 4.8e-8.
inline constexpr float gelu_slope_width = 0.84375f, gelu_slope_end = 6.25f;
inline constexpr float gelu_slope_series[8][8] = {
    {0, 0x1.12a1b4p-1f, 0x1.3b924p-1f, 0x1.1216f2p-1f, 0x1.0220e4p-1f, 0x1.001c82p-1f, 0x1.0000b2p-1f,
     0x1.000002p-1f},
    {0x1.988452p-1f, 0x1.709ba4p-2f, -0x1.4d868ap-4f, -0x1.247fa6p-4f, -0x1.9cadaap-7f, -0x1.c3271ep-11f,
     -0x1.ae5afep-16f, -0x1.76dd14p-22f},
    {0, -0x1.8cf56ap-2f, -0x1.7e936ep-4f, 0x1.94648cp-5f, 0x1.120ed2p-6f, 0x1.9ff274p-10f, 0x1.e533bp-15f,
     0x1.28722ep-20f},
    {-0x1.105778p-2f, 0x1.6ba3d4p-6f, 0x1.008e6ep-3f, -0x1.1deef6p-11f, -0x1.8b99ep-7f, -0x1.d2dda6p-10f,
     -0x1.6d5b26p-14f, -0x1.cffa7ap-20f},
    {0, 0x1.ad680ep-4f, -0x1.1ffbc2p-5f, -0x1.3ff89p-6f, 0x1.146a24p-8f, 0x1.579fap-10f, 0x1.dce32ep-14f,
     0x1.7acae2p-23f},
    {0x1.e9bd24p-5f, -0x1.9211e4p-6f, -0x1.0e063p-6f, 0x1.7841ecp-7f, 0x1.9d5864p-12f, -0x1.5b8ac4p-11f,
     -0x1.20cddcp-14f, -0x1.24a4aep-19f},
    {0, -0x1.fc006cp-7f, 0x1.6d979ap-7f, -0x1.366c6cp-10f, -0x1.2721f6p-10f, 0x1.0ef3acp-12f,
     -0x1.924718p-15f, 0x1.3e5afcp-17f},
    {-0x1.2893cep-7f, 0x1.6df28ap-8f, -0x1.bd742cp-13f, -0x1.6f2c18p-10f, 0x1.10315ep-11f, 0x1.6d9884p-18f,
     -0x1.21df22p-16f, -0x1.346c54p-20f},
};

/// 1/2 + sign(x) * (the pieces of `table` at |x|). NaN gives NaN.
template <class Ops, int Count>
[[gnu::always_inline]] inline typename Ops::Float half_and_odd_pieces(Ops& ops,
                                                                      const float (&table)[Count][8],
                                                                      float width, float end,
                                                                      typename Ops::Float x) {
    const auto sign = ops.and_int(ops.bits(x), ops.integer(static_cast<int>(0x80000000u)));
    const auto a = ops.from_bits(ops.and_int(ops.bits(x), ops.integer(0x7fffffff)));
    const auto inside = ops.minimum(ops.constant(end), a);
    // n sits in the low bits of `shifted`.
    const auto shifted = ops.fma(inside, ops.constant(1 / width), ops.constant(rounding_shift));
    const auto n = ops.subtract(shifted, ops.constant(rounding_shift));
    const auto distance = ops.fma(n, ops.constant(-width), inside);
    const auto index = ops.bits(shifted);
    auto sum = ops.lookup(table[Count - 1], index);
    for (int k = Count - 2; k >= 0; --k) sum = ops.fma(sum, distance, ops.lookup(table[k], index));
    return ops.add(ops.from_bits(ops.or_int(ops.bits(sum), sign)), ops.constant(0.5f));
}

/// Phi(x) = (1 + erf(x / sqrt(2))) / 2.
template <class Ops>
[[gnu::always_inline]] inline typename Ops::Float normal_distribution(Ops& ops, typename Ops::Float x) {
    return half_and_odd_pieces(ops, normal_series, normal_width, normal_end, x);
}

/// Phi(x) + x phi(x).
template <class Ops>
[[gnu::always_inline]] inline typename Ops::Float gelu_exact_slope(Ops& ops, typename Ops::Float x) {
    return half_and_odd_pieces(ops, gelu_slope_series, gelu_slope_width, gelu_slope_end, x);
}

}  // namespace mantissa::elementary
