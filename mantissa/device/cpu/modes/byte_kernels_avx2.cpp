// Matrices of bytes in AVX2.
#include "mantissa/device/cpu/modes/byte_body.h"
#include "mantissa/device/cpu/modes/lanes_avx2.h"

namespace mantissa::inline v0::on_cpu {

ByteKernel byte_kernel_avx2() { return byte_kernel_of<Avx2S8Lanes>(); }

}  // namespace mantissa::on_cpu
