// A GPU that is not there, to plan for: what its driver, cuBLASLt and cuDNN say when they are asked. Nothing
// runs on it.
#pragma once

#include <functional>
#include <string>

#include "mantissa/device/cuda/cublaslt.h"
#include "mantissa/device/cuda/cudnn.h"
#include "mantissa/device/cuda/libraries.h"
#include "mantissa/device/cuda/planned/convolution_job.h"
#include "mantissa/device/cuda/planned/matmul_job.h"

namespace mantissa::inline v0::cuda {

/// Throws UserError for an architecture that is not known.
Libraries planned_libraries(const std::string& architecture);

/// Runs a product in its order on a stream.
using RunMatmul = std::function<Result(Stream stream, const MatmulJob& job)>;

/// Not safe to be called by two threads. `max_offered`: algorithms for a product.
CublasLt make_planned_cublaslt(RunMatmul run, int max_offered = 1);

/// Runs a convolution in its order on a stream.
using RunConvolution = std::function<Result(Stream stream, const ConvolutionJob& job)>;

/// Not safe to be called by two threads.
Cudnn make_planned_cudnn(RunConvolution run);

}  // namespace mantissa::cuda
