// Matrices of bytes in plain C++.
#include "mantissa/device/cpu/modes/byte_body.h"
#include "mantissa/device/cpu/modes/lanes_generic.h"

namespace mantissa::inline v0::on_cpu {

ByteKernel byte_kernel_generic() { return byte_kernel_of<GenericS8Lanes>(); }

}  // namespace mantissa::on_cpu
