// The contraction: out = epilogue(op(a) * op(b)) for plain and batched matrices, as a pure function of a
// problem and addresses. It knows nothing of graphs; running it allocates nothing and decides nothing.
//
//     ContractionProblem problem{.m = 4096, .n = 768, .k = 3072};
//     problem.a = {.leading = 3072};                                  // x [4096, 3072]
//     problem.b = {.transpose = Transpose::yes, .leading = 3072};     // W [768, 3072]
//     problem.out = {.leading = 768};                                 // y [4096, 768] = x W^T
//     const PreparedContraction prepared = prepare_contraction(problem, isa);
//     Buffer workspace(prepared.workspace_bytes(pool.threads()));
//     contract(prepared, {.a = x, .b = w, .out = y}, workspace.as<std::byte>(), pool);
#pragma once

#include <cstddef>
#include <span>

#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/contraction/prepared.h"
#include "mantissa/device/cpu/contraction/problem.h"

namespace mantissa::inline v0::on_cpu {

/// Computes the problem. `workspace` is aligned to 64 bytes; its contents before and after mean nothing. The
/// result has the same bits for any number of threads. Throws InternalError, with the reason, when an operand
/// is missing or misaligned, the workspace is too small or misaligned, or the output overlaps an input.
void contract(const PreparedContraction& prepared, const ContractionArguments& arguments,
              std::span<std::byte> workspace, ThreadPool& pool);

/// Makes the panels of a b that is kept (ContractionProblem::keeps_b), of kept_bytes(), aligned to 64 bytes:
/// they serve every contract() by the same `prepared` for as long as b is as it was. Throws as contract().
void pack_b(const PreparedContraction& prepared, const void* b, std::span<std::byte> panels,
            ThreadPool& pool);

}  // namespace mantissa::on_cpu
