// Layer norm for AVX2 and FMA.
#include "mantissa/device/cpu/rows/lanes_avx2.h"
// The lanes come first: the bodies are written in terms of them.
#include "mantissa/device/cpu/rows/body_table_norm.h"

namespace mantissa::inline v0::on_cpu {

NormKernels norm_kernels_avx2() { return norm_kernels(); }

}  // namespace mantissa::on_cpu
