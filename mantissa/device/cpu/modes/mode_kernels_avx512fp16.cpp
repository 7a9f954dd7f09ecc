// FP16 matrices summed in FP16. Compiled everywhere, but so far never run: the machine it was written on has
// no arithmetic of FP16.
#include "mantissa/device/cpu/modes/lanes_avx512fp16.h"
#include "mantissa/device/cpu/modes/mode_body.h"
#include "mantissa/device/cpu/modes/mode_kernels.h"

namespace mantissa::inline v0::on_cpu {

ModeKernel mode_kernel_avx512_fp16() { return mode_kernel_of<Avx512F16NativeLanes>(); }

}  // namespace mantissa::on_cpu
