// Demands of a contraction on its problem (refusal() in problem.h) and on the memory of its operands.
#pragma once

#include <cstddef>
#include <span>

#include "mantissa/device/cpu/contraction/kernels.h"
#include "mantissa/device/cpu/contraction/problem.h"

namespace mantissa::inline v0::on_cpu {

/// Throws InternalError, with the reason, where the problem is refused.
void require_accepted(const ContractionProblem& problem);

/// The memory of one operand, wherever it is.
struct OperandMemory {
    const char* name = nullptr;
    DType dtype = DType::f32;
    /// Bytes of an operand from its first byte to behind its last, over all entries of the batch; 0: no byte
    /// is touched.
    std::size_t bytes = 0;
};

/// The memory of all operands; operands that the problem does not have take no bytes.
struct ContractionMemory {
    OperandMemory a, b, out, bias;
    std::size_t kept_bytes = 0;  ///< of the panels of a kept b, which are aligned to 64 bytes
};

ContractionMemory memory_of(const ContractionProblem& problem);

/// Throws InternalError unless every operand is there and aligned to its elements, the workspace is aligned,
/// and everything has the bytes needed. The output must overlap neither an input nor the workspace.
void check_arguments(const ContractionProblem& problem, const ContractionMemory& memory,
                     const ContractionArguments& arguments, std::span<const std::byte> workspace,
                     std::size_t workspace_needed);
/// Checks pack_b(): b is there and aligned to its elements, its panels are aligned and have the bytes needed,
/// and the two do not overlap.
void check_packing(const ContractionMemory& memory, const void* b, std::span<const std::byte> panels);

}  // namespace mantissa::on_cpu
