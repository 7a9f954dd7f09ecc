// cuBLASLt on the emulated GPU: contractions by the CPU's kernels, late and in captured graphs as all work
// there is, under the library's contract. What the real one refuses is refused; what is not emulated, too, as
// not supported.
#pragma once

#include "mantissa/device/cuda/cublaslt.h"

namespace mantissa::inline v0::cuda {

class Machine;

/// The machine must live as long as what is kept. Not safe to be called by two threads: EmulatedGpu sees to
/// it.
CublasLt make_emulated_cublaslt(Machine& machine);

}  // namespace mantissa::cuda
