// NVIDIA's assembler, where CUDA's toolkit is installed: what it makes of a kernel.
#pragma once

#include <string>

#include "mantissa/codegen/grid_kernel.h"

namespace mantissa::testing {

/// Whether ptxas is there; with an architecture, whether it knows that one (sm_100 came with CUDA 12.8).
bool has_assembler(const std::string& architecture = "");

/// The registers and the shared memory that a kernel takes, in ptxas's words. A kernel that is refused or
/// spills fails the test.
std::string assembled(const codegen::GridKernel& kernel, const std::string& architecture);

}  // namespace mantissa::testing
