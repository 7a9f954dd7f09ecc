// Softmax and cross entropy in plain C++, for any machine.
#include "mantissa/device/cpu/rows/lanes_generic.h"
// The lanes come first: the bodies are written in terms of them.
#include "mantissa/device/cpu/rows/body_table_softmax.h"

namespace mantissa::inline v0::on_cpu {

SoftmaxKernels softmax_kernels_generic() { return softmax_kernels(); }

}  // namespace mantissa::on_cpu
