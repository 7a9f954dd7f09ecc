// Coefficients of exp, log, tanh, erf, sin and cos in FP32: the one set for kernels, generated code and the
// scalar functions. Each polynomial is a minimax fit of relative error (Remez exchange), its coefficients
// rounded to FP32 one after another from the lowest, the rest fitted again after each. The error of the
// rounded polynomial alone stands beside it; half an ULP of FP32 is 6e-8.
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

}  // namespace mantissa::elementary
