// Pools and batch normalisation for CPUs with AVX512_BF16, AMX among them: as for AVX-512, but for the
// rounding of results to BF16.
#include "mantissa/device/cpu/rows/image_lanes_avx512.h"
#include "mantissa/device/cpu/rows/results_avx512bf16.h"
// The lanes come first: the bodies are written in terms of them.
#include "mantissa/device/cpu/rows/body_table_image.h"

namespace mantissa::inline v0::on_cpu {

ImageKernels image_kernels_avx512bf16() { return image_kernels_named("avx512_bf16"); }

}  // namespace mantissa::on_cpu
