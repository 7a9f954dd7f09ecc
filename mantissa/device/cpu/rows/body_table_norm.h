// Layer norm: a level's table, made of the bodies. See body_loops.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_norm.h"

namespace mantissa::inline v0::on_cpu {
namespace {

constexpr NormKernels norm_kernels() {
    return {
        .layer_norm = layer_norm_rows,
        .layer_norm_grad = layer_norm_grad_rows,
    };
}

}  // namespace
}  // namespace mantissa::on_cpu
