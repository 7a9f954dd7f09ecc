// exp, log, tanh and erf of one FP32 number: the very bits that kernels and generated code compute. Error
// bounds in ULP, checked by tests over dense samples: exp 1.1, log 2, tanh 2, erf 1.5.
#pragma once

namespace mantissa::inline v0::elementary {

/// e^x; zero where the result would be subnormal.
float exp(float x);
/// Natural logarithm; a subnormal counts as zero.
float log(float x);
float tanh(float x);
float erf(float x);

}  // namespace mantissa::elementary
