// Compiles an attention kernel to LLVM IR.
#pragma once

#include <string>

#include "mantissa/codegen/attention_kernel.h"

namespace llvm {
class Module;
}

namespace mantissa::inline v0::codegen {

/// Adds the kernel, under the name, to a module for a GPU.
void emit_attention(llvm::Module& module, const std::string& name, const AttentionKernel& kernel);
/// One that makes gradients.
void emit_attention_gradient(llvm::Module& module, const std::string& name, const AttentionKernel& kernel);

}  // namespace mantissa::codegen
