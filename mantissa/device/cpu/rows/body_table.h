// The table of a level's row kernels, made of the bodies. See body_loops.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_elementwise.h"
#include "mantissa/device/cpu/rows/body_gelu.h"
#include "mantissa/device/cpu/rows/body_loss.h"
#include "mantissa/device/cpu/rows/body_movement.h"
#include "mantissa/device/cpu/rows/body_norm.h"
#include "mantissa/device/cpu/rows/body_softmax.h"
#include "mantissa/device/cpu/rows/body_update.h"

namespace mantissa::inline v0::on_cpu {
namespace {

constexpr RowKernels table_named(const char* name) {
    return {
        .name = name,
        .layer_norm = layer_norm_rows,
        .layer_norm_grad = layer_norm_grad_rows,
        .softmax = softmax_rows,
        .softmax_grad = softmax_grad_rows,
        .gelu = gelu_elements,
        .gelu_grad = gelu_grad_elements,
        .cross_entropy = cross_entropy_rows,
        .cross_entropy_grad = cross_entropy_grad_rows,
        .embedding = embedding_tokens,
        .embedding_grad = embedding_grad_part,
        .adamw = adamw_elements,
        .sgd = sgd_elements,
        .squared_norm = squared_norm_elements,
        .column_sum = column_sum_part,
        .elementwise = elementwise_piece,
        .cast = cast_elements,
        .copy = copy_runs,
        .transpose = transpose_part,
    };
}

}  // namespace
}  // namespace mantissa::on_cpu
