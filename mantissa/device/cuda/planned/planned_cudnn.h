// cuDNN's checks, what it takes and refuses, with no GPU and no library: descriptors as the library has them,
// for plans that are made and not run, unless somebody runs the convolutions. It refuses what cuDNN 9.19 was
// seen to refuse where it finished plans for GPUs without one (bench/cudnn_engines.py), and as not supported
// what is not planned for.
#pragma once

#include <functional>

#include "mantissa/device/cuda/cudnn.h"
#include "mantissa/device/cuda/planned/convolution_job.h"

namespace mantissa::inline v0::cuda {

/// Runs a convolution in its order on a stream.
using RunConvolution = std::function<Result(Stream stream, const ConvolutionJob& job)>;

/// Not safe to be called by two threads.
Cudnn make_planned_cudnn(RunConvolution run);

}  // namespace mantissa::cuda
