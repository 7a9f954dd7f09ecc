// Pools and batch normalisation: the table of a level.
#include "mantissa/device/cpu/rows/image_lanes_of_level.h"
// The lanes come first: the bodies are written in terms of them.
#include "mantissa/device/cpu/rows/body_batch_norm.h"
#include "mantissa/device/cpu/rows/body_pools.h"
#include "mantissa/device/cpu/rows/image_table.h"

namespace mantissa::inline v0::on_cpu {

ImageKernels MANTISSA_OF_LEVEL(image_kernels)() {
    return {
        .name = MANTISSA_LEVEL,
        .max_pool = max_pool_rows,
        .max_pool_grad = max_pool_grad_rows,
        .average_pool = average_pool_rows,
        .average_pool_grad = average_pool_grad_rows,
        .relu_grad = relu_grad_elements,
        .moments = moments_part,
        .normalize = normalize_rows,
        .batch_norm_grad_sums = batch_norm_grad_sums_part,
        .batch_norm_grad = batch_norm_grad_rows,
    };
}

}  // namespace mantissa::on_cpu
