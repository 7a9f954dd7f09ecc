// Compiles a loop nest to LLVM IR: one function over a range of rows, or of elements.
#pragma once

#include <string>

#include "mantissa/codegen/compiler.h"

namespace llvm {
class Module;
}

namespace mantissa::inline v0::codegen {

/// Adds the function to the module: on the host of the type `FusedFunction`, for a GPU a kernel.
void emit(llvm::Module& module, const std::string& name, const LoopNest& nest, const CodeTarget& target);

}  // namespace mantissa::codegen
