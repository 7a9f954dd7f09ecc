// Compiles a kernel of seen tiles to LLVM IR.
#pragma once

#include <string>

#include "mantissa/codegen/attention_kernel.h"

namespace llvm {
class Module;
}

namespace mantissa::inline v0::codegen {

/// Adds the kernel, under the name, to a module for a GPU.
void emit_seen_tiles(llvm::Module& module, const std::string& name, const SeenTilesKernel& kernel);

}  // namespace mantissa::codegen
