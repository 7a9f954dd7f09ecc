// Attention without the scores in memory as kernels of a GPU's matrix units: the computation, the places of
// operands, and the division of the work, as plain data. The algorithm is FlashAttention-2's (Dao, arXiv
// 2307.08691). But a kernel of its own, over the keys, makes the queries' gradients, instead of atomic
// additions. So two of seven products are made twice, and every sum has one order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/codegen/score_code.h"
#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0::codegen {

/// The places of the rows of a head's elements, in elements of the tensor from its address on.
struct HeadPlaces {
    std::int64_t start = 0, sequence = 0, head = 0, position = 0;
};

/// Where an operand of a score, or its gradient, has a pair's element.
struct PairPlaces {
    std::int64_t start = 0, sequence = 0, head = 0, query = 0, key = 0;
};

/// The function of the scores of pairs, as graph/attention_score.h has it.
struct PairScore {
    struct Operand {
        DType dtype = DType::f32;
        PairPlaces places = {};
    };
    /// The gradient of an operand, one for each output of `sums`.
    struct Gradient {
        /// `query_rows`: sums over the pairs of a query, by `query_gradient`, f32 [B, H, T]. `key_rows`: sums
        /// over the pairs of a key, by `key_gradients`, f32 [B, H / group, S] with the heads of a group added
        /// up. `each_pair`: an element is one pair's, and stored by `query_gradient` in the operand's layout;
        /// elements that no query sees are not written.
        enum class By : std::uint8_t { query_rows, key_rows, each_pair };
        By by = By::query_rows;
        std::size_t operand = 0;
    };

    std::vector<Operand> operands = {};
    /// New scores of scaled ones, multipliers and slopes where there are any. None: scores stay as they are.
    std::optional<ScoreCode> remade = {};
    /// Hides pairs (score -infinity) by conditions that do not depend on scores: needed only in tiles that a
    /// part sees some pairs of.
    std::optional<ScoreCode> mask = {};
    bool mask_by_sequence = false, mask_by_head = false;  ///< the mask differs between them
    std::optional<ScoreCode> sums = {};
    std::vector<Gradient> gradients = {};

    bool makes(ScoreCode::Makes what) const;
};

/// Letters as in graph/attention_layout.h. Addresses are multiples of 16 where `aligned`.
struct AttentionKernel {
    enum class Makes : std::uint8_t {
        /// Parameters: q, k, v, o, lse f32 [B, H, T].
        output,
        /// do, q, k, v, o, lse, dq, and rows f32 [2, B, H, T] for `key_gradients`: the log-sum-exp by the
        /// logarithm of 2, and sum(do o).
        query_gradient,
        /// do, q, k, v, the rows of `query_gradient`, dk, dv.
        key_gradients,
    };
    Makes makes = Makes::output;
    DType dtype = DType::bf16;  ///< BF16 or FP16, of all tensors but lse
    std::int64_t sequences = 0, heads = 0, queries = 0, keys = 0, head_size = 0;
    std::int64_t group = 1;  ///< heads of queries that share a head of keys and values
    bool causal = false;
    double scale = 1;
    HeadPlaces q, k, v, o;  ///< of their gradients, too
    /// Further parameters: of a mask, its seen tiles; the operands; and the gradients that the kernel makes.
    std::shared_ptr<const PairScore> score = {};  ///< null: plain
    /// For `query_gradient`: the last parameter is the gradient of lse, f32 [B, H, T].
    bool lse_gradient = false;
    bool askew = false;  ///< tensors begin at any element, not at multiples of 16 bytes
    /// Products by wgmma.mma_async, four warps at a time: for sm_90a alone.
    bool by_warpgroups = false;
};

/// How a kernel's work is cut, by shapes alone.
struct AttentionTiles {
    int warps = 0;           ///< of a block
    int rows_of_warp = 0;    ///< queries, or keys of `key_gradients`: 16 or 32
    int columns = 0;         ///< keys, or queries of `key_gradients`, that are in shared memory at a time
    int head_size = 0;       ///< rounded up to whole matrices of 16
    bool keeps_both = true;  ///< of `key_gradients`: values, as keys, are held in registers
    int together = 1;  ///< warps that multiply together: a part of the block, which sees any warp's pairs
    int blocks = 0;    ///< that a multiprocessor shall have registers for; 0: not said

    int rows() const { return warps * rows_of_warp; }
    int rows_of_part() const { return together * rows_of_warp; }
    int parts() const { return warps / together; }
    int threads() const { return 32 * warps; }
    /// Bytes of shared memory from one row of a tile to the next: 16 more than a row has, so that eight rows
    /// lie in banks of their own.
    int pitch() const { return 2 * head_size + 16; }
};
AttentionTiles tiles_of(const AttentionKernel& kernel);

/// Finds the tiles of columns that the parts of a masked kernel's blocks see. Parameters: the operands of the
/// score; and a byte for each part and tile, [tables, tiles of rows, tiles of columns, 4]. The causal mask
/// hides pairs, too, and so does the end of queries or keys. A warp makes one byte.
struct SeenTilesKernel {
    enum Sees : std::uint8_t { nothing, some, everything };
    static constexpr int parts_of_tile = 4;  ///< the kernel may have fewer parts

    AttentionKernel of;

    std::int64_t tables() const;
    std::int64_t row_tiles() const;
    std::int64_t column_tiles() const;
    std::int64_t bytes() const { return tables() * row_tiles() * column_tiles() * parts_of_tile; }
};

/// The gradients of operands of the score that the kernel makes, in order.
std::vector<std::size_t> score_gradients_of(const AttentionKernel& kernel);
std::size_t parameters_of(const AttentionKernel& kernel);

/// Why the kernel cannot be made; empty if it can.
std::string refuse_attention(const AttentionKernel& kernel);

/// Whether rows are read and written 16 bytes at a time: then addresses must be multiples of 16.
bool moves_whole_rows(const AttentionKernel& kernel);

std::int64_t blocks_of(const AttentionKernel& kernel);
std::string text_of(const AttentionKernel& kernel);
std::string text_of(const SeenTilesKernel& kernel);

}  // namespace mantissa::codegen
