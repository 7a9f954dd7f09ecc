// The emulated GPU's cuBLASLt and cuDNN: calls are checked as NVIDIA's check them, and run by the CPU's
// kernels.
#pragma once

#include <functional>

#include "mantissa/device/cuda/cublaslt.h"
#include "mantissa/device/cuda/cudnn.h"
#include "tests/emulated_gpu/convolution_job.h"
#include "tests/emulated_gpu/matmul_job.h"

namespace mantissa::inline v0::cuda {

class Machine;

/// Runs a product in its order on a stream.
using RunMatmul = std::function<Result(Stream stream, const MatmulJob& job)>;

/// Not safe to be called by two threads. `max_offered`: algorithms for a product; `has_fp8`: the GPU
/// multiplies FP8.
CublasLt make_emulated_cublaslt(RunMatmul run, int max_offered, bool has_fp8);

/// Runs a convolution in its order on a stream.
using RunConvolution = std::function<Result(Stream stream, const ConvolutionJob& job)>;

/// Not safe to be called by two threads.
Cudnn make_emulated_cudnn(RunConvolution run);

/// Runs it now. Throws Fault for what is not there, or was never written.
void run_matmul(Machine& machine, const MatmulJob& job);

/// Likewise. `run`: how many ran before on the machine.
void convolve(Machine& machine, mantissa::Device& cpu, const ConvolutionJob& job, std::int64_t run);

}  // namespace mantissa::cuda
