// What a contraction demands of its problem and its operands.
#pragma once

#include <cstddef>
#include <span>

#include "mantissa/device/cpu/contraction/contraction.h"

namespace mantissa::cpu {

/// Throws InternalError unless every operand is there and aligned to its elements, the workspace is aligned
/// and has the `needed` bytes, and the output overlaps neither an input nor the workspace.
void check_arguments(const ContractionProblem& problem, const ContractionArguments& arguments,
                     std::span<const std::byte> workspace, std::size_t needed);

}  // namespace mantissa::cpu
