// What a contraction demands of its problem and its operands.
#pragma once

#include <cstddef>
#include <span>

#include "mantissa/device/cpu/contraction/contraction.h"

namespace mantissa::cpu {

/// Bytes that a call needs; of operands only those that come packed.
struct NeededBytes {
    std::size_t workspace = 0;
    std::size_t packed_a = 0;
    std::size_t packed_b = 0;
};

/// Throws InternalError unless every operand is there and aligned to its elements (packed ones to 64 bytes),
/// the workspace is aligned, everything has the bytes needed, and the output overlaps neither an input nor
/// the workspace.
void check_arguments(const ContractionProblem& problem, const ContractionArguments& arguments,
                     std::span<const std::byte> workspace, const NeededBytes& needed);

/// The same for pack(), where the packed operand needs `needed` bytes.
void check_packing(const ContractionProblem& problem, Side side, const void* source,
                   std::span<const std::byte> packed, std::size_t needed);

}  // namespace mantissa::cpu
