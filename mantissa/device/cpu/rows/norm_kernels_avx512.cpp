// Layer norm for AVX-512 (F, BW, DQ, VL).
#include "mantissa/device/cpu/rows/lanes_avx512.h"
// The lanes come first: the bodies are written in terms of them.
#include "mantissa/device/cpu/rows/body_table_norm.h"

namespace mantissa::inline v0::on_cpu {

NormKernels norm_kernels_avx512() { return norm_kernels(); }

}  // namespace mantissa::on_cpu
