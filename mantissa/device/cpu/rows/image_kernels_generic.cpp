// Pools and batch normalisation in plain C++, for any machine.
#include "mantissa/device/cpu/rows/image_lanes_generic.h"
// The lanes come first: the bodies are written in terms of them.
#include "mantissa/device/cpu/rows/body_table_image.h"

namespace mantissa::inline v0::on_cpu {

ImageKernels image_kernels_generic() { return image_kernels_named("generic"); }

}  // namespace mantissa::on_cpu
