// Layer norm: the table of a level.
#include "mantissa/device/cpu/rows/lanes_of_level.h"
// The lanes come first: the bodies are written in terms of them.
#include "mantissa/device/cpu/rows/body_norm.h"

namespace mantissa::inline v0::on_cpu {

NormKernels MANTISSA_OF_LEVEL(norm_kernels)() {
    return {
        .layer_norm = layer_norm_rows,
        .layer_norm_grad = layer_norm_grad_rows,
    };
}

}  // namespace mantissa::on_cpu
