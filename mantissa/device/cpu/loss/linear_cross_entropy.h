// The loss of a linear layer's logits and its gradients, a chunk of rows at a time, so that N x V logits
// never exist: for each chunk a contraction makes logits, its epilogue keeps their exponentials, which become
// gradients as two more contractions pack them, for dx and to add to dw. It knows nothing of graphs; it
// allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/device/cpu/isa.h"
#include "mantissa/numerics/dtype.h"

namespace mantissa::cpu {

/// Rows whose exponentials exist at a time, unless a problem says otherwise. For BF16 and a vocabulary of
/// 50,257 they take 103 MB. What each chunk repeats is the traffic of w and dw: in BF16 w is read, packed and
/// read again twice, dw read and written, 20 C V bytes beside 6 * 1,024 C V FLOP, so 300 FLOP a byte.
inline constexpr std::int64_t rows_of_loss_chunk = 1024;

/// loss = mean over N of lse(x w^T) - (x w^T)[target]; dx and dw are its gradients times the seed.
/// Exponentials and gradients of logits are stored as `dtype`, each rounded once from FP32; lse, losses, dw
/// are FP32.
struct LinearCrossEntropy {
    std::int64_t rows = 0;      // N
    std::int64_t channels = 0;  // C
    std::int64_t classes = 0;   // V
    /// Rows of w and dw, of which those from `classes` on are padding: read, and given no gradient. 0: none.
    std::int64_t columns = 0;
    DType dtype = DType::f32;  ///< of x, w and dx
    Multiply multiply = Multiply::as_stored;
    std::int64_t most_rows_of_chunk = rows_of_loss_chunk;
    bool gradients = false;  ///< else dx, dw and the seed mean nothing
};

/// Data of one call. No output may overlap an input.
struct LinearCrossEntropyArguments {
    const void* x = nullptr;                // [N, C]
    const void* w = nullptr;                // [columns, C]
    const std::int32_t* targets = nullptr;  // [N], each in [0, V)
    float seed = 1;
    float* loss = nullptr;  // one number
    void* dx = nullptr;     // [N, C]
    float* dw = nullptr;    // [columns, C]
};

/// Why this level cannot do the problem; empty if it can.
std::string refusal(const LinearCrossEntropy& problem, Isa isa);

/// Bytes of scratch with so many threads: one chunk of exponentials where there are gradients, some numbers a
/// token and group of classes, and what a contraction needs.
std::size_t workspace_bytes(const LinearCrossEntropy& problem, Isa isa, int threads);

/// `workspace` is aligned to 64 bytes. The same bits for any number of threads: chunks follow from the shape,
/// the first writes dw and the others add to it in order. Throws UserError naming the position and the value
/// if a target is outside [0, V), InternalError where the level refuses or memory is missing or misaligned.
void linear_cross_entropy(const LinearCrossEntropy& problem, const LinearCrossEntropyArguments& arguments,
                          std::span<std::byte> workspace, ThreadPool& pool, Isa isa);

}  // namespace mantissa::cpu
