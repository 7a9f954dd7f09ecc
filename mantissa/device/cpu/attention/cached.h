// Attention of one query, or a few, over the keys and values that are kept while a text grows. Each key is
// read once, in place, for all heads that share it, and none beyond the query's position. A pure function;
// see attention.h for whole sequences.
#pragma once

#include <cstdint>

#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/isa.h"
#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0::on_cpu {

struct CachedAttention {
    std::int64_t sequences = 1;               ///< B
    std::int64_t heads = 0;                   ///< B * H
    std::int64_t queries = 0;                 ///< T
    std::int64_t keys = 0;                    ///< S: how many can be kept
    std::int64_t head_size = 0;               ///< D
    DType dtype = DType::f32;                 ///< of q, k, v and o: f32 or bf16
    float scale = 1;                          ///< of the scores
    std::int64_t group = 1;                   ///< heads of queries in a row that share keys; G = H / group
    std::int64_t window = 0;                  ///< last keys that a query sees; 0: all up to its position
    float cap = 0;                            ///< c tanh(x / c) of the scores x; 0: as they are
    const void* q = nullptr;                  // [B * H, T, D]
    const void* k = nullptr;                  // [B * G, S, D]
    const void* v = nullptr;                  // [B * G, S, D]
    const std::int32_t* positions = nullptr;  // [B, T]: query (b, t) sees keys up to that position
    void* o = nullptr;                        // [B * H, T, D]
    float* workspace = nullptr;               ///< cached_attention_workspace() bytes
};

std::int64_t cached_attention_workspace(const CachedAttention& size, int threads);

/// Throws UserError if a position lies outside of the keys.
void cached_attention(const CachedAttention& problem, ThreadPool& pool, Isa isa);

}  // namespace mantissa::on_cpu
