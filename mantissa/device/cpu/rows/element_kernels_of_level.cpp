// GELU, updates, sums and movement: the table of a level.
#include "mantissa/device/cpu/rows/lanes_of_level.h"
// The lanes come first: the bodies are written in terms of them.
#include "mantissa/device/cpu/rows/body_gelu.h"
#include "mantissa/device/cpu/rows/body_movement.h"
#include "mantissa/device/cpu/rows/body_rotary.h"
#include "mantissa/device/cpu/rows/body_running_sums.h"
#include "mantissa/device/cpu/rows/body_update.h"

namespace mantissa::inline v0::on_cpu {

ElementKernels MANTISSA_OF_LEVEL(element_kernels)() {
    return {
        .gelu = gelu_elements,
        .gelu_grad = gelu_grad_elements,
        .rotary = rotary_tokens,
        .embedding = embedding_tokens,
        .embedding_grad = embedding_grad_rows,
        .adamw = adamw_elements,
        .sgd = sgd_elements,
        .squared_norm = squared_norm_elements,
        .column_sum = column_sum_part,
        .running_sums = running_sums_rows,
        .copy = copy_runs,
        .transpose = transpose_part,
    };
}

}  // namespace mantissa::on_cpu
