// A GPU that is not there, to plan for: what its driver says when it is asked, and a cuBLASLt and a cuDNN
// that take whatever they are given. Nothing runs on it.
#pragma once

#include <string>

#include "mantissa/device/cuda/libraries.h"

namespace mantissa::inline v0::cuda {

/// Throws UserError for an architecture that is not known.
Libraries planned_libraries(const std::string& architecture);

}  // namespace mantissa::cuda
