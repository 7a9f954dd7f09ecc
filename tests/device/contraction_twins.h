// The kernels of BF16 units in plain C++, every access checked by the array that it goes to: for tests on any
// CPU, under the sanitizers too.
#pragma once

#include "mantissa/device/cpu/contraction/kernels.h"

namespace mantissa::inline v0::on_cpu {

/// The same as contraction_kernels_avx512_bf16(), in plain C++.
ContractionKernels contraction_kernels_dot_twin();
/// The same as contraction_kernels_amx(), with the caches that its sizes were measured on.
ContractionKernels contraction_kernels_tile_twin(const CacheSizes& caches = {.l1d = 48 << 10, .l2 = 2 << 20});

}  // namespace mantissa::on_cpu
