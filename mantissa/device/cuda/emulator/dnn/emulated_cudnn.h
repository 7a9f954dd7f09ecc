// cuDNN on the emulated GPU: descriptors as the library has them, and convolutions by the CPU's kernels, late
// and in captured graphs as all work there is. It refuses what cuDNN 9.19 was seen to refuse where it
// finished plans for GPUs without one (bench/cudnn_engines.py); what is not emulated, too, as not supported.
#pragma once

#include "mantissa/device/cuda/cudnn.h"

namespace mantissa::inline v0::cuda {

class Machine;

/// The machine must live as long as what is kept. Not safe to be called by two threads: EmulatedGpu sees to
/// it.
Cudnn make_emulated_cudnn(Machine& machine);

}  // namespace mantissa::cuda
