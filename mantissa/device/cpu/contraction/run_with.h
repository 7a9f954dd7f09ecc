// The contraction with a given set of inner kernels, whatever CPU they were made for: what contract() calls
// once it has chosen, and what tests call to choose for themselves.
#pragma once

#include <cstddef>
#include <span>

#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/device/cpu/contraction/kernels.h"

namespace mantissa::cpu {

std::size_t workspace_bytes(const ContractionProblem& problem, const ContractionKernels& kernels,
                            int threads);

std::size_t packed_bytes(const ContractionProblem& problem, Side side, const ContractionKernels& kernels);

void pack(const ContractionProblem& problem, Side side, const void* source, std::span<std::byte> packed,
          ThreadPool& pool, const ContractionKernels& kernels);

/// The problem must be one that refusal() accepts, with operands of types that the kernels pack.
void contract(const ContractionProblem& problem, const ContractionArguments& arguments,
              std::span<std::byte> workspace, ThreadPool& pool, const ContractionKernels& kernels);

}  // namespace mantissa::cpu
