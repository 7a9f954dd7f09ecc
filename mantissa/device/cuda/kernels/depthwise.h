// Convolutions of one filter a channel by kernels of our own.
#pragma once

#include "mantissa/device/cuda/kernels/kernels.h"

namespace mantissa::inline v0::on_cuda {

/// `askew`: as Problem has it.
Expected<PreparedKernel> prepare_depthwise(Context& context, const std::string& op,
                                           const codegen::ConvolutionKernel& convolution, bool askew);

}  // namespace mantissa::on_cuda
