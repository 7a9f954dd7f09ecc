// Pools and batch normalisation for AVX-512 (F, BW, DQ, VL).
#include "mantissa/device/cpu/rows/image_lanes_avx512.h"
// The lanes come first: the bodies are written in terms of them.
#include "mantissa/device/cpu/rows/body_table_image.h"

namespace mantissa::inline v0::on_cpu {

ImageKernels image_kernels_avx512() { return image_kernels_named("avx512"); }

}  // namespace mantissa::on_cpu
