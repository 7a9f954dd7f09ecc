// FP64 matrices in AVX-512, and those of FP16 as FP32.
#include "mantissa/device/cpu/modes/lanes_avx512.h"
#include "mantissa/device/cpu/modes/mode_body.h"
#include "mantissa/device/cpu/modes/mode_kernels.h"

namespace mantissa::inline v0::on_cpu {

ModeKernel mode_kernel_avx512_f64() { return mode_kernel_of<Avx512F64Lanes>(); }
ModeKernel mode_kernel_avx512_f16() { return mode_kernel_of<Avx512F16Lanes>(); }

}  // namespace mantissa::on_cpu
