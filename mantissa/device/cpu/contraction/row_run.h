// The contraction of a single row of a with b as it lies in memory, for each entry of a batch: what
// generating a token consists of. Bound by reading b.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/device/cpu/contraction/kernels.h"

namespace mantissa::cpu {

/// Whether the problem is one of them, and the kernels have functions for it.
bool is_single_row(const ContractionProblem& problem, const ContractionKernels& kernels);

std::size_t row_workspace_bytes(const ContractionProblem& problem, int threads);

/// `finish` gets every block of sums; null: they go to an FP32 output as they are, added where `store` says
/// so.
void run_single_row(const ContractionProblem& problem, const ContractionArguments& arguments,
                    const ContractionKernels& kernels, std::span<std::byte> workspace, ThreadPool& pool,
                    EpilogueFunction finish, const void* finish_args);

}  // namespace mantissa::cpu
