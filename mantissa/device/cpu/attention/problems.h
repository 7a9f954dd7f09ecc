// The problems that attention kernels solve: sizes, types, places and pointers, nothing else. Plain data
// without functions, since files compiled for one instruction set include it.
//
// The D elements of a head at one position stand side by side; where such rows lie is said by strides, so
// that operands are read and gradients written where their neighbours in the graph have them: [B, H, T, D],
// [B, T, H, D], or [B, T, 3, H, D] of queries, keys and values in one tensor. Queries, keys, values, their
// result and all gradients have one type, F32, BF16 or F16; arithmetic and sums are in FP32.
#pragma once

#include <cstdint>

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

/// Elements from one to the next.
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

/// o = softmax(scale q k^T) v, lse = log(sum(exp(scale q k^T))).
struct Attention {
    AttentionSize size;
    ConstHeads q = {};           // [B, H, T, D]
    ConstHeads k = {};           // [B, G, S, D]
    ConstHeads v = {};           // [B, G, S, D]
    Heads o = {};                // [B, H, T, D]
    float* lse = nullptr;        // [N, T]
    float* workspace = nullptr;  ///< attention_workspace() bytes
};

struct AttentionGrad {
    AttentionSize size;
    ConstHeads d_o = {};         // [B, H, T, D]
    ConstHeads q = {};           // [B, H, T, D]
    ConstHeads k = {};           // [B, G, S, D]
    ConstHeads v = {};           // [B, G, S, D]
    ConstHeads o = {};           // [B, H, T, D]
    const float* lse = nullptr;  // [N, T]
    Heads dq = {};               // [B, H, T, D]
    Heads dk = {};               // [B, G, S, D]
    Heads dv = {};               // [B, G, S, D]
    float* workspace = nullptr;  ///< attention_grad_workspace() bytes
};

}  // namespace mantissa::on_cpu
