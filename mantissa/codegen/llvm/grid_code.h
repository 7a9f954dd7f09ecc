// Compiles a kernel of a grid to LLVM IR.
#pragma once

#include "mantissa/codegen/grid_kernel.h"

namespace llvm {
class Module;
}

namespace mantissa::inline v0::codegen {

/// Adds the kernel, under its name, to a module for a GPU.
void emit(llvm::Module& module, const GridKernel& kernel);

}  // namespace mantissa::codegen
