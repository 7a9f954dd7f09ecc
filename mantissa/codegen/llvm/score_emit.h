// Compiles the code of a score function to LLVM IR: one function of a block of pairs, for the host.
#pragma once

#include <string>

#include "mantissa/codegen/compiler.h"

namespace llvm {
class Module;
}

namespace mantissa::inline v0::codegen {

/// Adds the function to the module, of the type `ScoreFunction`.
void emit(llvm::Module& module, const std::string& name, const ScoreCode& code, const HostFeatures& features);

}  // namespace mantissa::codegen
