// Pools and batch normalisation: a level's table, made of the bodies. See body_loops.h for how this file is
// used.
#pragma once

#include "mantissa/device/cpu/rows/body_batch_norm.h"
#include "mantissa/device/cpu/rows/body_pools.h"
#include "mantissa/device/cpu/rows/image_table.h"

namespace mantissa::inline v0::on_cpu {
namespace {

constexpr ImageKernels image_kernels_named(const char* name) {
    return {
        .name = name,
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

}  // namespace
}  // namespace mantissa::on_cpu
