// Softmax and cross entropy: the table of a level.
#include "mantissa/device/cpu/rows/lanes_of_level.h"
// The lanes come first: the bodies are written in terms of them.
#include "mantissa/device/cpu/rows/body_loss.h"
#include "mantissa/device/cpu/rows/body_softmax.h"

namespace mantissa::inline v0::on_cpu {

SoftmaxKernels MANTISSA_OF_LEVEL(softmax_kernels)() {
    return {
        .softmax = softmax_rows,
        .softmax_grad = softmax_grad_rows,
        .cap = cap_elements,
        .cross_entropy = cross_entropy_rows,
        .cross_entropy_grad = cross_entropy_grad_rows,
    };
}

}  // namespace mantissa::on_cpu
