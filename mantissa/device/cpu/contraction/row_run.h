// The contraction of a few rows of a with b as it lies in memory, for each entry of a batch: what generating
// the next tokens of some texts consists of. Bound by reading b.
#pragma once

#include <cstddef>
#include <span>

#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/contraction/prepared.h"

namespace mantissa::inline v0::on_cpu {

/// Shared by the rows of a call.
struct RowCall {
    const ContractionProblem& problem;
    const PreparedRows& rows;
    const ContractionArguments& arguments;
    /// Gets every block of sums; null: they go to an FP32 output as they are, added where `store` says so.
    EpilogueFunction finish = nullptr;
    const void* finish_args = nullptr;
};

void run_few_rows(const RowCall& call, std::span<std::byte> workspace, ThreadPool& pool);

}  // namespace mantissa::on_cpu
