// Attention and its gradient without the scores in memory, as pure functions of a problem. They know nothing
// of graphs.
//
// Each runs on all threads of the pool and gives the same bits for any number of them. Memory is the
// caller's: nothing is allocated, and the workspace grows with T + S, not with T S. Sizes below 1, missing
// pointers, types that are not F32, BF16 or F16, a causal mask with fewer keys than queries, and outputs that
// overlap anything throw InternalError.
#pragma once

#include <string>

#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/attention/kernel_table.h"
#include "mantissa/device/cpu/attention/problems.h"
#include "mantissa/device/cpu/isa.h"

namespace mantissa::inline v0::on_cpu {

/// The table of a level, for problems of all types.
const AttentionKernels& attention_kernels(Isa isa = chosen_isa());
/// The table for tensors of BF16 on the CPU's unit for BF16; null where the CPU has none.
const AttentionKernels* attention_kernels(Bf16Unit unit);
/// Why kernels cannot do the problem; empty if they can.
std::string refusal(const AttentionKernels&, const AttentionSize&);

/// Bytes of workspace for so many threads, aligned to 64 bytes.
/// Of a score, the counts of operands and gradients and their strides are read, no pointer.
std::int64_t attention_workspace(const AttentionKernels&, const AttentionSize&, int threads,
                                 const Score* score = nullptr);
void attention(const AttentionKernels&, const Attention&, ThreadPool&);

std::int64_t attention_grad_workspace(const AttentionKernels&, const AttentionSize&, int threads,
                                      const Score* score = nullptr);
void attention_grad(const AttentionKernels&, const AttentionGrad&, ThreadPool&);

}  // namespace mantissa::on_cpu
