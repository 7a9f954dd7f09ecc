// Attention without the scores in memory as kernels of a GPU's matrix units: what is computed, where operands
// lie, and how the work is cut, as plain data. The algorithm is FlashAttention-2's (Dao, arXiv 2307.08691),
// but for the gradients: those of queries have a kernel of their own, which goes over the keys, instead of
// being added up atomically. So two of seven products are made twice, and every sum has one order.
#pragma once

#include <cstdint>
#include <string>

#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0::codegen {

/// Where the rows of a head's elements lie, in elements of the tensor from its address on.
struct HeadPlaces {
    std::int64_t start = 0, sequence = 0, head = 0, position = 0;
};

/// Letters as in graph/attention_layout.h. Addresses are multiples of 16 where `aligned`.
struct AttentionKernel {
    enum class Makes : std::uint8_t {
        /// Parameters: q, k, v, o, lse f32 [B, H, T].
        output,
        /// do, q, k, v, o, lse, dq, and rows f32 [2, B, H, T] for `key_gradients`: the log-sum-exp by the
        /// logarithm of 2, and sum(do o).
        query_gradient,
        /// do, q, k, v, those rows, dk, dv.
        key_gradients,
    };
    Makes makes = Makes::output;
    DType dtype = DType::bf16;  ///< BF16 or FP16, of all tensors but lse
    std::int64_t sequences = 0, heads = 0, queries = 0, keys = 0, head_size = 0;
    std::int64_t group = 1;  ///< heads of queries that share a head of keys and values
    bool causal = false;
    double scale = 1;
    HeadPlaces q, k, v, o;  ///< of their gradients, too
};

/// How a kernel's work is cut, by shapes alone.
struct AttentionTiles {
    int warps = 0;           ///< of a block
    int rows_of_warp = 0;    ///< queries, or keys of `key_gradients`: 16 or 32
    int columns = 0;         ///< keys, or queries of `key_gradients`, that are in shared memory at a time
    int head_size = 0;       ///< rounded up to whole matrices of 16
    bool keeps_both = true;  ///< of `key_gradients`: values, as keys, are held in registers

    int rows() const { return warps * rows_of_warp; }
    int threads() const { return 32 * warps; }
    /// Bytes of shared memory from one row of a tile to the next: 16 more than it holds, so that eight rows
    /// lie in banks of their own.
    int pitch() const { return 2 * head_size + 16; }
};
AttentionTiles tiles_of(const AttentionKernel& kernel);

/// Why it cannot be made; empty if it can.
std::string refuse_attention(const AttentionKernel& kernel);

/// Whether rows are read and written 16 bytes at a time: then addresses must be multiples of 16.
bool moves_whole_rows(const AttentionKernel& kernel);

std::int64_t blocks_of(const AttentionKernel& kernel);
std::string text_of(const AttentionKernel& kernel);

}  // namespace mantissa::codegen
