// Softmax and cross entropy for AVX-512 (F, BW, DQ, VL).
#include "mantissa/device/cpu/rows/lanes_avx512.h"
// The lanes come first: the bodies are written in terms of them.
#include "mantissa/device/cpu/rows/body_table_softmax.h"

namespace mantissa::inline v0::on_cpu {

SoftmaxKernels softmax_kernels_avx512() { return softmax_kernels(); }

}  // namespace mantissa::on_cpu
