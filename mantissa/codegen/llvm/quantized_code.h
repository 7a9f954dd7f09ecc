// Compiles a kernel of quantised weights to LLVM IR.
#pragma once

#include <string>

#include "mantissa/codegen/quantized_kernel.h"

namespace llvm {
class Module;
}

namespace mantissa::inline v0::codegen {

/// Adds the kernel, under the name, to a module for a GPU.
void emit_quantized(llvm::Module& module, const std::string& name, const QuantizeKernel& kernel);
void emit_quantized(llvm::Module& module, const std::string& name, const WeightGroupsKernel& kernel);
void emit_quantized(llvm::Module& module, const std::string& name, const QuantizedRowsKernel& kernel);
void emit_quantized(llvm::Module& module, const std::string& name, const ScaledSumsKernel& kernel);

}  // namespace mantissa::codegen
