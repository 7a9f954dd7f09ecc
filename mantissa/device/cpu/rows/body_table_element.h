// Element-wise functions, updates and movement: a level's table, made of the bodies. See body_loops.h for how
// this file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_elementwise.h"
#include "mantissa/device/cpu/rows/body_gelu.h"
#include "mantissa/device/cpu/rows/body_movement.h"
#include "mantissa/device/cpu/rows/body_rotary.h"
#include "mantissa/device/cpu/rows/body_update.h"

namespace mantissa::inline v0::on_cpu {
namespace {

constexpr ElementKernels element_kernels() {
    return {
        .gelu = gelu_elements,
        .gelu_grad = gelu_grad_elements,
        .rotary = rotary_tokens,
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
