// Element-wise functions, updates and movement for AVX2 and FMA.
#include "mantissa/device/cpu/rows/lanes_avx2.h"
// The lanes come first: the bodies are written in terms of them.
#include "mantissa/device/cpu/rows/body_table_element.h"

namespace mantissa::inline v0::on_cpu {

ElementKernels element_kernels_avx2() { return element_kernels(); }

}  // namespace mantissa::on_cpu
