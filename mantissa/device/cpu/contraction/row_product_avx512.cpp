// A few rows times a matrix for AVX-512.
#include "mantissa/device/cpu/rows/lanes_avx512.h"
// The lanes come first: the body is written in terms of them.
#include "mantissa/device/cpu/contraction/row_product_body.h"

namespace mantissa::inline v0::on_cpu {

RowProductKernels row_product_avx512() { return row_product_kernels<8>(); }

}  // namespace mantissa::on_cpu
