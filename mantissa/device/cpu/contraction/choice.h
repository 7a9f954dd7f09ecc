// The set of inner kernels that a problem runs on.
#pragma once

#include "mantissa/device/cpu/contraction/kernels.h"
#include "mantissa/device/cpu/contraction/problem.h"

namespace mantissa::inline v0::on_cpu {

/// The choice by the level, the types of the operands and the number of columns.
ContractionKernels kernels_of(const ContractionProblem& problem, Isa isa);

}  // namespace mantissa::on_cpu
