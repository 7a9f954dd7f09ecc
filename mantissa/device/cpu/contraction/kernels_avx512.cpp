#include "mantissa/device/cpu/contraction/kernels.h"
namespace mantissa::cpu {
ContractionKernels contraction_kernels_avx512() { return contraction_kernels_generic(); }
}  // namespace mantissa::cpu
