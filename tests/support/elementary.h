// Functions of FP32 numbers with the exact bits of kernels and generated code. Error bounds in ULP, checked
// by tests over dense samples: exp 1.1, log 2, tanh 2, erf 1.5, sin and cos 2.1, log1p and expm1 2, pow 3.5.
#pragma once

namespace mantissa::inline v0::elementary {

/// e^x; zero where the result would be subnormal.
float exp(float x);
/// Natural logarithm; a subnormal counts as zero.
float log(float x);
float tanh(float x);
float erf(float x);
/// Sine and cosine of an angle in radians of magnitude below 2^20; beyond, NaN.
float sin(float x);
float cos(float x);
/// log(1 + x) and e^x - 1, accurate to the last digits where x is small.
float log1p(float x);
float expm1(float x);
/// x^y as in C; a subnormal counts as zero.
float pow(float x, float y);

}  // namespace mantissa::elementary
