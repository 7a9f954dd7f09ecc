// Which set of inner kernels a problem runs on.
#pragma once

#include "mantissa/device/cpu/contraction/kernels.h"
#include "mantissa/device/cpu/contraction/problem.h"

namespace mantissa::inline v0::on_cpu {

/// From the level, the types of the operands and the number of columns.
ContractionKernels kernels_of(const ContractionProblem& problem, Isa isa);

}  // namespace mantissa::on_cpu
