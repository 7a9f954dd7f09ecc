// Packing BF16 operands into the panels of tile_kernels.h with AVX-512.
#pragma once

#include "mantissa/device/cpu/contraction/kernels.h"

namespace mantissa::cpu {

/// Only the BF16 entries are there.
PanelKernels tile_pack_a_avx512();
PanelKernels tile_pack_b_avx512();

}  // namespace mantissa::cpu
