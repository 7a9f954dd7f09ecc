// Gathering an operand from images with 512-bit vectors.
#pragma once

#include "mantissa/device/cpu/contraction/kernels.h"

namespace mantissa::inline v0::on_cpu {

void gather_avx512(const WindowPiece& piece);

}  // namespace mantissa::on_cpu
