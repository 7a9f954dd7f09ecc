// Pools and batch normalisation for AVX2 and FMA.
#include "mantissa/device/cpu/rows/image_lanes_avx2.h"
// The lanes come first: the bodies are written in terms of them.
#include "mantissa/device/cpu/rows/body_table_image.h"

namespace mantissa::inline v0::on_cpu {

ImageKernels image_kernels_avx2() { return image_kernels_named("avx2"); }

}  // namespace mantissa::on_cpu
