// Matrices of bytes in dot products of four.
#include "mantissa/device/cpu/modes/lanes_avx512vnni.h"
#include "mantissa/device/cpu/modes/mode_body.h"
#include "mantissa/device/cpu/modes/mode_kernels.h"

namespace mantissa::inline v0::on_cpu {

ModeKernel mode_kernel_avx512_vnni() { return mode_kernel_of<Avx512S8Lanes>(128); }

}  // namespace mantissa::on_cpu
