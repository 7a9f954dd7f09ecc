// Calls of the emulated GPU's libraries, run by the CPU's kernels.
#pragma once

#include "mantissa/device/cuda/planned/convolution_job.h"
#include "mantissa/device/cuda/planned/matmul_job.h"

namespace mantissa::inline v0::cuda {

class Machine;

/// Runs it now. Throws Fault for what is not there, or was never written.
void run_matmul(Machine& machine, const MatmulJob& job);

/// Likewise. `run`: how many ran before on the machine.
void convolve(Machine& machine, mantissa::Device& cpu, const ConvolutionJob& job, std::int64_t run);

}  // namespace mantissa::cuda
