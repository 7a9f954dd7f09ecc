// Matrices of bytes in dot products of four.
#include "mantissa/device/cpu/modes/byte_body.h"
#include "mantissa/device/cpu/modes/lanes_avx512vnni.h"

namespace mantissa::inline v0::on_cpu {

ByteKernel byte_kernel_avx512_vnni() { return byte_kernel_of<Avx512S8Lanes>(128); }

}  // namespace mantissa::on_cpu
