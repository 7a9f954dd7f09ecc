// Questions of kernels that are prepared for so many ranks.
#pragma once

#include <string>

#include "mantissa/device/cuda/kernels/kernels.h"

namespace mantissa::inline v0::on_cuda {

/// Why a problem is not for the ranks among which the device is one; empty if it is.
std::string refuse_ranks(const Context& context, const Problem& problem);

}  // namespace mantissa::on_cuda
