// The problems that attention kernels solve: sizes, types and pointers, nothing else. Plain data without
// functions, since files compiled for one instruction set include it.
//
// Tensors are dense, heads of all sequences one after another: N = B H of them. Queries, keys, values, their
// result and all gradients have one type, F32, BF16 or F16; arithmetic and sums are in FP32.
#pragma once

#include <cstdint>

#include "mantissa/device/cpu/rows/problems.h"

namespace mantissa::cpu {

struct AttentionSize {
    std::int64_t heads = 0;      ///< N, of all sequences together
    std::int64_t queries = 0;    ///< T
    std::int64_t keys = 0;       ///< S; with a causal mask at least T, the last query sees the last key
    std::int64_t head_size = 0;  ///< D
    bool causal = false;
    float scale = 1;
    DType dtype = DType::f32;  ///< of all tensors but lse
};

/// o = softmax(scale q k^T) v, lse = log(sum(exp(scale q k^T))).
struct Attention {
    AttentionSize size;
    const void* q = nullptr;     // [N, T, D]
    const void* k = nullptr;     // [N, S, D]
    const void* v = nullptr;     // [N, S, D]
    void* o = nullptr;           // [N, T, D]
    float* lse = nullptr;        // [N, T]
    float* workspace = nullptr;  ///< attention_workspace() bytes
};

struct AttentionGrad {
    AttentionSize size;
    const void* d_o = nullptr;   // [N, T, D]
    const void* q = nullptr;     // [N, T, D]
    const void* k = nullptr;     // [N, S, D]
    const void* v = nullptr;     // [N, S, D]
    const void* o = nullptr;     // [N, T, D]
    const float* lse = nullptr;  // [N, T]
    void* dq = nullptr;          // [N, T, D]
    void* dk = nullptr;          // [N, S, D]
    void* dv = nullptr;          // [N, S, D]
    float* workspace = nullptr;  ///< attention_grad_workspace() bytes
};

}  // namespace mantissa::cpu
