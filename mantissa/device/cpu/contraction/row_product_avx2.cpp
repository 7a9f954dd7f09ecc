// A few rows times a matrix for AVX2.
#include "mantissa/device/cpu/rows/lanes_avx2.h"
// The lanes come first: the body is written in terms of them.
#include "mantissa/device/cpu/contraction/row_product_body.h"

namespace mantissa::inline v0::on_cpu {

RowProductKernels row_product_avx2() { return row_product_kernels<2>(); }

}  // namespace mantissa::on_cpu
