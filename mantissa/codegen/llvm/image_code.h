// Compiles a kernel over images to LLVM IR.
#pragma once

#include <string>

#include "mantissa/codegen/image_kernel.h"

namespace llvm {
class Module;
}

namespace mantissa::inline v0::codegen {

/// Adds the kernel, under the name, to a module for a GPU.
void emit_pool(llvm::Module& module, const std::string& name, const PoolKernel& kernel);
void emit_convolution(llvm::Module& module, const std::string& name, const ConvolutionKernel& kernel);

}  // namespace mantissa::codegen
