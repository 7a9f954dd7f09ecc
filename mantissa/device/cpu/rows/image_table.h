// The table of kernels over images. Plain data without functions, since files compiled for one instruction
// set include it. Who runs which part on which thread is decided in the drivers, from shapes alone.
#pragma once

#include "mantissa/device/cpu/rows/image_problems.h"
#include "mantissa/device/cpu/rows/kernel_table.h"

namespace mantissa::inline v0::on_cpu {

struct ImageKernels {
    const char* name;
    /// Rows of outputs, counted over all images; of gradients, rows of the image.
    void (*max_pool)(const MaxPool&, Range rows, Stores);
    void (*max_pool_grad)(const MaxPoolGrad&, Range rows, Stores);
    void (*average_pool)(const AveragePool&, Range rows, Stores);
    void (*average_pool_grad)(const AveragePoolGrad&, Range rows, Stores);
    void (*relu_grad)(const ReluGrad&, Range elements, Stores);
    /// The deviation of these rows of these columns: how far the mean is from the first row, and the sum of
    /// the squared differences from the mean. The former tells more than the mean in FP32, where the mean is
    /// large. [columns.last - columns.first] each.
    void (*moments)(const Moments&, Range rows, Range columns, const MomentsOfPart& part);
    void (*normalize)(const Normalize&, Range rows, Stores);
    /// Sums of dy and of dy (x - mean) over these rows of these columns.
    void (*batch_norm_grad_sums)(const BatchNormGrad&, Range rows, Range columns, float* sum_dy,
                                 float* sum_dy_x);
    void (*batch_norm_grad)(const BatchNormGrad&, const BatchNormGradScales&, Range rows, Stores);
};

ImageKernels image_kernels_generic();
ImageKernels image_kernels_avx2();
ImageKernels image_kernels_avx512();
ImageKernels image_kernels_avx512bf16();

}  // namespace mantissa::on_cpu
