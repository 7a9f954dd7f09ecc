// A convolution as a request to cuDNN, and the plan that cuDNN answers with.
#pragma once

#include <memory>
#include <string>

#include "mantissa/device/cuda/kernels/kernels.h"

namespace mantissa::inline v0::on_cuda {

/// Images [N, H, W, C] and filters [K, R, S, C / groups], all of one type, sums in FP32.
struct DnnConvolution {
    codegen::ConvolutionResult makes = codegen::ConvolutionResult::output;
    Convolution of = {};
    DType dtype = DType::f32;
    bool bias = false;  ///< [K] is added to an output
    bool tf32 = false;  ///< FP32 may be multiplied as TF32
};

class DnnPlan {
  public:
    virtual ~DnnPlan() = default;
    /// Bytes of scratch.
    virtual std::int64_t workspace() const = 0;
    /// x, w and y, or their gradients, and the bias if there is one; addresses are multiples of 16.
    struct Addresses {
        cuda::DevicePtr x = 0, w = 0, y = 0, bias = 0, workspace = 0;
    };
    virtual void queue(const Addresses& addresses) = 0;
    /// "engine 1 of cuDNN 9.19.0", by the library's number of it.
    virtual std::string text() const = 0;
};

/// The first engine of cuDNN's heuristics that adds in one order in FP32 and multiplies operands as they are,
/// and FP32 as TF32 only where that is allowed. The reason, in the library's words, where there is none.
Expected<std::shared_ptr<DnnPlan>> plan_convolution(const Context& context,
                                                    const DnnConvolution& convolution);

}  // namespace mantissa::on_cuda
