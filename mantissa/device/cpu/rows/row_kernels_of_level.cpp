// The table of row kernels of a level.
#include "mantissa/device/cpu/rows/lanes_of_level.h"
// The lanes come first: the bodies are written in terms of them.
#include "mantissa/device/cpu/rows/body_batch_norm.h"
#include "mantissa/device/cpu/rows/body_gelu.h"
#include "mantissa/device/cpu/rows/body_loss.h"
#include "mantissa/device/cpu/rows/body_movement.h"
#include "mantissa/device/cpu/rows/body_norm.h"
#include "mantissa/device/cpu/rows/body_pools.h"
#include "mantissa/device/cpu/rows/body_rotary.h"
#include "mantissa/device/cpu/rows/body_running_sums.h"
#include "mantissa/device/cpu/rows/body_softmax.h"
#include "mantissa/device/cpu/rows/body_update.h"

namespace mantissa::inline v0::on_cpu {

const RowKernels& MANTISSA_OF_LEVEL(row_kernels)() {
    static constexpr RowKernels table = {
        .name = MANTISSA_LEVEL,
        .layer_norm_grad = layer_norm_grad_rows,
        .softmax = softmax_row,
        .cap = cap_elements,
        .cross_entropy = cross_entropy_rows,
        .cross_entropy_grad = cross_entropy_grad_rows,
        .gelu_grad = gelu_grad_elements,
        .rotary = rotary_tokens,
        .embedding = embedding_tokens,
        .embedding_grad = embedding_grad_rows,
        .squared_norm = squared_norm_elements,
        .column_sum = column_sum_part,
        .running_sums = running_sums_rows,
        .copy = copy_runs,
        .transpose = transpose_part,
        .max_pool = max_pool_rows,
        .max_pool_grad = max_pool_grad_rows,
        .average_pool = average_pool_rows,
        .average_pool_grad = average_pool_grad_rows,
        .moments = moments_part,
        .normalize = normalize_rows,
        .batch_norm_grad_sums = batch_norm_grad_sums_part,
        .batch_norm_grad = batch_norm_grad_rows,
    };
    return table;
}

}  // namespace mantissa::on_cpu
