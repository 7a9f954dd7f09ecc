// Softmax and cross entropy: a level's table, made of the bodies. See body_loops.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_loss.h"
#include "mantissa/device/cpu/rows/body_softmax.h"

namespace mantissa::inline v0::on_cpu {
namespace {

constexpr SoftmaxKernels softmax_kernels() {
    return {
        .softmax = softmax_rows,
        .softmax_grad = softmax_grad_rows,
        .cross_entropy = cross_entropy_rows,
        .cross_entropy_grad = cross_entropy_grad_rows,
    };
}

}  // namespace
}  // namespace mantissa::on_cpu
