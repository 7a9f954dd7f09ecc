// One table of attention kernels per instruction-set level: serial functions over a part of a problem.
// attention.cpp divides the parts among threads, from shapes alone. Plain data without functions, since files
// compiled for one instruction set include it.
#pragma once

#include <cstdint>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/attention/problems.h"
#include "mantissa/device/cpu/rows/kernel_table.h"

namespace mantissa::inline v0::on_cpu {

// Blocks are alike on all levels, so that sums are cut alike. Scores are computed transposed, the block's
// queries in the lanes: then the softmax runs down the registers and nothing is added across lanes.

/// Queries of a forward block: two vectors of lanes; with eight to twelve rows of sums they fill the
/// registers. A wider block would read keys and values from L2 less often, but that is 4 bytes a cycle
/// already.
inline constexpr std::int64_t query_lanes = 32;
/// Keys of a forward block: 128 x 32 scores are 16 KB, half of the smallest L1. The sums of o are rescaled
/// and stored once a block: at 128 keys that is a hundredth of the work.
inline constexpr std::int64_t key_rows = 128;
/// Keys of a backward block. Its dq is read and written once for so many keys.
inline constexpr std::int64_t key_lanes = 64;
/// Queries that meet a backward block at a time: 64 x 64 scores and their gradients are 32 KB.
inline constexpr std::int64_t query_rows = 64;

/// Elements of a head, padded to whole vectors.
constexpr std::int64_t padded_head(std::int64_t head_size) { return align_up(head_size, 16); }

/// Floats of the dq of one head: whole tiles of rows.
constexpr std::int64_t dq_floats(std::int64_t head_size, std::int64_t queries) {
    return align_up(queries, 16) * padded_head(head_size);
}

/// Floats of delta, one a query. Behind them, for each block of 32 queries of each head, stands whether it is
/// silent: its do is all 0, and so is all that it adds to gradients.
constexpr std::int64_t delta_floats(const AttentionSize& size) {
    return align_up(size.sequences * size.heads * size.queries, 16);
}
constexpr std::int64_t silent_blocks(const AttentionSize& size) {
    return ceil_div(size.queries, table_positions);
}

/// Positions that are packed together: the depth of a product of tiles, and two tiles of rows.
inline constexpr std::int64_t packed_positions = 32;

/// An operand as tiles take it, each a KB in one piece: 16 rows of 32 elements of BF16.
struct PackedOperand {
    ConstHeads x = {};        // [B, heads, count, D]
    std::int64_t heads = 0;   ///< of a sequence: H, or G of keys and values
    std::int64_t count = 0;   ///< queries or keys
    float* along = nullptr;   // [heads, count / 16, D / 32] tiles of [position, element]; null: not wanted
    float* across = nullptr;  // [heads, count / 32, D / 16] tiles of [element, position]; null: not wanted
    std::int64_t first_head = 0;  ///< of the packed heads
};

/// Floats of a head in either form; behind its last position it is filled up with zeros.
constexpr std::int64_t packed_floats(std::int64_t head_size, std::int64_t count) {
    return align_up(count, packed_positions) * head_size / 2;
}

/// Segments that the keys of a head are cut into, at most: then the dq of a segment stays a small multiple of
/// q.
inline constexpr std::int64_t max_segments = 8;

/// The places where a piece of work adds up all gradients but dk and dv.
struct QueryGradients {
    float* first = nullptr;                ///< dq of heads that share keys, dq_floats() each
    std::int64_t stride = 0;               ///< floats from one head's to the next
    Range queries = {};                    ///< that may see the keys: of these dq is written
    const ScoreGradient* score = nullptr;  ///< by gradient of the score's operands
};

/// The dq of a head's segments, [T, padded_head] in dq_floats() each, one after another.
struct DqParts {
    const float* first = nullptr;
    std::int64_t count = 1;
    const Range* seen = nullptr;  ///< by part: the queries that it has; null: all queries
};

struct AttentionKernels {
    const char* name;
    /// The size of heads must be a multiple of this. Above 1 tensors are of BF16: products take pairs, or
    /// tiles.
    std::int64_t head_unit = 1;
    /// Not null where products take operands packed: forward k along and v across, backward q and do both
    /// ways, in this order. Packs some of a head's rows; their first is a multiple of packed_positions.
    void (*pack)(const AttentionSize&, const PackedOperand&, std::int64_t head, Range rows) = nullptr;

    /// o and lse of at most query_lanes queries of one head. `scratch`: forward_scratch() and score_scratch
    /// floats.
    void (*forward)(const Attention&, std::int64_t head, Range queries, float* scratch) = nullptr;
    /// delta [N, T] = sum(do * o) of each of these queries of one head, of whole blocks of 32, and which
    /// blocks are silent.
    void (*delta)(const AttentionGrad&, std::int64_t head, Range queries, float* delta) = nullptr;
    /// Computes dk and dv of these keys of one of the B G heads of keys. Adds their contributions to dq of
    /// each head of queries that reads them, and to the gradients of the score's operands. `delta` has all
    /// rows. `scratch`: backward_scratch() and score_scratch floats.
    void (*backward)(const AttentionGrad&, std::int64_t key_head, Range keys, const float* delta,
                     const QueryGradients& to, float* scratch) = nullptr;
    /// dq of these queries of one head.
    void (*sum_dq)(const AttentionGrad&, std::int64_t head, Range queries, const DqParts& parts) = nullptr;
};

/// Floats that one worker needs.
constexpr std::int64_t forward_scratch(std::int64_t head_size) {
    const std::int64_t keys = 2 * key_rows * head_size;                       // widened k and v
    const std::int64_t lanes = (2 * head_size + key_rows + 4) * query_lanes;  // q, o, scores, m, l
    return align_up(keys + lanes, 16);
}
constexpr std::int64_t backward_scratch(std::int64_t head_size) {
    const std::int64_t lanes = (4 * head_size + 2 * query_rows) * key_lanes;  // k, v, dk, dv, scores
    const std::int64_t rows = 2 * query_rows * head_size + key_lanes * padded_head(head_size);
    const std::int64_t weights = query_rows * key_lanes;  // and gradients of scores, in pairs
    return align_up(lanes + rows + weights + query_rows * key_lanes / 2, 16);
}

/// Floats for a score function: its blocks, and operands whose lanes are no neighbours.
constexpr std::int64_t forward_score_scratch(const Score& score) {
    return (1 + score.operand_count) * key_rows * query_lanes;
}
constexpr std::int64_t backward_score_scratch(const Score& score) {
    return (4 + score.operand_count + score.gradient_count) * query_rows * key_lanes;
}

const AttentionKernels& attention_kernels_generic();
const AttentionKernels& attention_kernels_avx2();
const AttentionKernels& attention_kernels_avx512();
/// For tensors of BF16 and heads of an even size.
const AttentionKernels& attention_kernels_avx512_bf16();
/// For tensors of BF16 and heads of a multiple of 32.
const AttentionKernels& attention_kernels_amx();

}  // namespace mantissa::on_cpu
