// Element-wise functions, updates and movement in plain C++, for any machine.
#include "mantissa/device/cpu/rows/lanes_generic.h"
// The lanes come first: the bodies are written in terms of them.
#include "mantissa/device/cpu/rows/body_table_element.h"

namespace mantissa::inline v0::on_cpu {

ElementKernels element_kernels_generic() { return element_kernels(); }

}  // namespace mantissa::on_cpu
