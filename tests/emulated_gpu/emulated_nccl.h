// NCCL as the emulated GPU has it: sends and receives on a stream, between emulated GPUs of this machine,
// whose processes or threads meet under the name that the unique id holds. What is refused is what the real
// one refuses.
#pragma once

#include "mantissa/device/cuda/nccl.h"

namespace mantissa::inline v0::cuda {

class Machine;

/// The machine must outlive it.
Nccl make_emulated_nccl(Machine& machine);

}  // namespace mantissa::cuda
