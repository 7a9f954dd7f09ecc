// PTX, the text that NVIDIA's driver takes: which architectures there are, and what a listing says above it.
#pragma once

#include <string>

#include "mantissa/codegen/compiler.h"

namespace mantissa::inline v0::codegen {

/// Throws UserError unless the architecture is one of nvptx_architectures().
void require_known(const NvptxTarget& target);

/// The version of PTX that the architecture came with, as LLVM's feature.
std::string ptx_version(const std::string& architecture);

/// Comments: what the code is for, how it is launched, and its pseudo-code.
std::string ptx_header(const FusedKernel& kernel, const NvptxTarget& target);

}  // namespace mantissa::codegen
