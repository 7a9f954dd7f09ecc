// A convolution as cuDNN is asked for it, with filters stored [K, R, S, C] beside images [N, H, W, C].
#pragma once

#include <cstdint>

#include "mantissa/codegen/image_kernel.h"
#include "mantissa/device/cuda/driver.h"
#include "mantissa/device/device.h"

namespace mantissa::inline v0::cuda {

/// How an engine of the library does it.
enum class EngineKind : std::uint8_t {
    plain,
    tensor_core,       ///< of FP32: as TF32
    winograd,          ///< as it is stored, with an error of 2^-12 of the result
    nondeterministic,  ///< every second run ends on another bit
    symmetric,         ///< right only where padding is the same before and behind
};

struct ConvolutionJob {
    codegen::ConvolutionResult makes = codegen::ConvolutionResult::output;
    Convolution of = {};
    DType dtype = DType::f32;
    EngineKind engine = EngineKind::plain;
    /// x, w, and y with a bias if it has one: what it makes is among them.
    DevicePtr x = 0, w = 0, y = 0, bias = 0;
    DevicePtr workspace = 0;
    std::uint64_t workspace_bytes = 0;
};

}  // namespace mantissa::cuda
