// A GPU that is not there, to plan for: what its driver, cuBLASLt and cuDNN say when they are asked. Nothing
// runs on it.
#pragma once

#include <string>

#include "mantissa/device/cuda/libraries.h"

namespace mantissa::inline v0::cuda {

/// Throws UserError for an architecture that is not known.
Libraries planned_libraries(const std::string& architecture);

}  // namespace mantissa::cuda
