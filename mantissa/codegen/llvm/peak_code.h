// Compiles a kernel of products in registers to LLVM IR.
#pragma once

#include <string>

#include "mantissa/codegen/peak_kernel.h"

namespace llvm {
class Module;
}

namespace mantissa::inline v0::codegen {

/// Adds the kernel, under the name, to a module for a GPU.
void emit_peak(llvm::Module& module, const std::string& name, const PeakKernel& kernel);

}  // namespace mantissa::codegen
