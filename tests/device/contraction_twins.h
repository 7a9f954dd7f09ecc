// The kernels of BF16 units in plain C++, every access checked by the array that it goes to: for tests on any
// CPU, under the sanitizers too.
#pragma once

#include "mantissa/device/cpu/contraction/kernels.h"

namespace mantissa::inline v0::on_cpu {

/// What contraction_kernels_avx512_bf16() does.
ContractionKernels contraction_kernels_dot_twin();
/// What contraction_kernels_amx() does, with the caches that its sizes were measured on.
ContractionKernels contraction_kernels_tile_twin(const CacheSizes& caches = {.l1d = 48 << 10, .l2 = 2 << 20});

}  // namespace mantissa::on_cpu
