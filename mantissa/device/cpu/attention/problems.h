// The problems that attention kernels solve: sizes, types, places and pointers, nothing else. Plain data
// without functions, since files compiled for one instruction set include it.
//
// The D elements of a head at one position stand side by side. Strides say where such rows lie, so that
// operands are read and gradients written where their neighbours in the graph have them: [B, H, T, D], [B, T,
// H, D], or [B, T, 3, H, D] of queries, keys and values in one tensor. Queries, keys, values, their result
// and all gradients have one type, F32, BF16 or F16; arithmetic and sums are in FP32.
#pragma once

#include <cstdint>

#include "mantissa/codegen/score_block.h"
#include "mantissa/device/cpu/rows/problems.h"

namespace mantissa::inline v0::on_cpu {

struct AttentionSize {
    std::int64_t sequences = 1;  ///< B
    std::int64_t heads = 0;      ///< H, of one sequence; N = B H are counted through all sequences
    std::int64_t queries = 0;    ///< T
    std::int64_t keys = 0;       ///< S; with a causal mask at least T, the last query sees the last key
    std::int64_t head_size = 0;  ///< D
    bool causal = false;
    float scale = 1;
    DType dtype = DType::f32;  ///< of all tensors but lse
    /// Heads of queries in a row that share a head of keys and values; divides H. G = H / group.
    std::int64_t group = 1;
};

/// Elements from one sequence, head or position to the next.
struct HeadStrides {
    std::int64_t sequence = 0;
    std::int64_t head = 0;
    std::int64_t position = 0;
};

struct ConstHeads {
    const void* data = nullptr;  // [B, H, T, D] by strides
    HeadStrides strides = {};
};

struct Heads {
    void* data = nullptr;  // [B, H, T, D] by strides
    HeadStrides strides = {};
};

/// Elements from one sequence, head, query and key to the next; 0: all share one element.
struct PairStrides {
    std::int64_t sequence = 0, head = 0, query = 0, key = 0;
};

/// An operand that a score function reads beside the scores: for each pair of a query and a key one element.
struct ScoreOperand {
    const void* data = nullptr;
    DType dtype = DType::f32;  ///< F32, BF16, F16, I32, BOOLEAN, or I64 where all strides are 0
    PairStrides strides = {};
};

/// The gradient of an operand: FP32, added up over all pairs that read an element.
struct ScoreGradient {
    float* data = nullptr;  ///< every element is written
    std::int64_t count = 0;
    std::int64_t first = 0;  ///< the element of sequence 0, head 0, query 0 and key 0
    PairStrides strides = {};
};

/// Visibility between a block of 32 queries and a block of 32 keys.
enum class Sees : std::uint8_t { nothing, some, everything };
inline constexpr std::int64_t table_positions = 32;

/// A table by blocks of 32 queries and 32 keys: [T / 32, S / 32], rounded up, for one or more pairs of a
/// sequence and a head. It does not know the causal mask.
struct BlockTable {
    const Sees* blocks = nullptr;         ///< null: everything
    std::int64_t sequence = 0, head = 0;  ///< blocks from one table to the next
};

/// The function of a scaled score s: f(s, operands), -infinity where it is hidden, and a factor of its weight
/// after the softmax. Functions get the query's and the key's position, so that they may count.
struct Score {
    // Null: f is s, and only blocks where `some` is seen meet a function.
    codegen::ScoreFunction forward = nullptr, backward = nullptr;
    codegen::ScoreFunction forward_masked = nullptr, backward_masked = nullptr;  ///< where `some` is seen
    /// Functions of scores of 0: 0 where they are seen, else -infinity. Null: whole blocks are met where some
    /// is seen.
    codegen::ScoreFunction forward_mask = nullptr, backward_mask = nullptr;
    codegen::ScoreFunction sums = nullptr;  ///< adds to the gradients of operands; null: there are none
    bool slopes = false;                    ///< backward makes them; else they are 1
    bool multiplies = false;                ///< weights have factors
    const ScoreOperand* operands = nullptr;
    std::int64_t operand_count = 0;
    const ScoreGradient* gradients = nullptr;
    std::int64_t gradient_count = 0;
    BlockTable table = {};
};

/// The most operands of a score function, so that no block allocates.
inline constexpr std::int64_t max_score_operands = 16;
inline constexpr std::int64_t max_score_gradients = 4;

/// Operands as kernels pack them, where they do: of `heads` heads from `first_head` on, one form after
/// another.
struct PackedHeads {
    const float* start = nullptr;
    std::int64_t first_head = 0, heads = 0;
};

/// o = softmax(scale q k^T) v, lse = log(sum(exp(scale q k^T))). With a score function it stands between the
/// scale and the softmax, and a query that sees nothing has o = 0 and lse = -infinity; without, both are NaN.
struct Attention {
    AttentionSize size;
    ConstHeads q = {};           // [B, H, T, D]
    ConstHeads k = {};           // [B, G, S, D]
    ConstHeads v = {};           // [B, G, S, D]
    Heads o = {};                // [B, H, T, D]
    float* lse = nullptr;        // [N, T]
    float* workspace = nullptr;  ///< attention_workspace() bytes
    PackedHeads packed = {};     ///< the driver's
    const Score* score = nullptr;
};

struct AttentionGrad {
    AttentionSize size;
    ConstHeads d_o = {};         // [B, H, T, D]
    ConstHeads q = {};           // [B, H, T, D]
    ConstHeads k = {};           // [B, G, S, D]
    ConstHeads v = {};           // [B, G, S, D]
    ConstHeads o = {};           // [B, H, T, D]
    const float* lse = nullptr;  // [N, T]
    /// The gradient of lse, which is added to the scores' gradients; null: nothing reads lse.
    const float* d_lse = nullptr;  // [N, T]
    Heads dq = {};                 // [B, H, T, D]
    Heads dk = {};                 // [B, G, S, D]
    Heads dv = {};                 // [B, G, S, D]
    float* workspace = nullptr;    ///< attention_grad_workspace() bytes
    PackedHeads packed = {};       ///< the driver's
    const Score* score = nullptr;
};

}  // namespace mantissa::on_cpu
