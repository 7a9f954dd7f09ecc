// From a loop nest to LLVM IR: one serial function over a range of rows, or of elements.
#pragma once

#include <string>

#include "mantissa/codegen/loop_nest.h"

namespace llvm {
class Module;
}

namespace mantissa::codegen {

/// Adds the function, of the type `FusedFunction`, to the module.
void emit(llvm::Module& module, const std::string& name, const LoopNest& nest);

}  // namespace mantissa::codegen
