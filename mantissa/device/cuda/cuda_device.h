// An NVIDIA GPU as a device, by its driver and cuBLASLt: memory is the GPU's, a program one graph of launches
// and copies, and what is queued runs while the host goes on. Kernels are compiled when a plan is finished.
#pragma once

#include <filesystem>
#include <memory>

#include "mantissa/base/or_reason.h"
#include "mantissa/device/cuda/libraries.h"
#include "mantissa/device/device.h"

namespace mantissa::inline v0 {

/// The first GPU, emulated where MANTISSA_EMULATE_GPU asks for it; or one line that says what is missing: the
/// driver, cuBLASLt, a version, an architecture, the compiler. Throws UserError where the driver fails.
/// Kernels that it compiles are kept in the folder kernels of `cache_folder()`.
OrReason<std::unique_ptr<Device>> make_cuda_device();

/// The first GPU of these libraries. `kernels`: where compiled ones are kept; empty: nowhere.
OrReason<std::unique_ptr<Device>> make_cuda_device(cuda::Libraries libraries,
                                                   std::filesystem::path kernels = {});

}  // namespace mantissa
