// Arguments of a score function: a block of pairs of a query and a key, in the middle of attention. Plain
// data without functions, since kernels that are compiled for one instruction set include it.
//
// A block is some rows of lanes. Forward its rows are keys and its lanes queries; backward its rows are
// queries and its lanes keys.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mantissa::inline v0::codegen {

struct ScoreBlock {
    // Blocks [rows, stride] of whole vectors. Blocks that a function neither reads nor makes may be null.
    const float* from = nullptr;        ///< times `scale`: the scaled scores
    float* scores = nullptr;            ///< the new ones, -infinity where hidden; may be `from`
    float* slopes = nullptr;            ///< backward: the derivatives of the new ones by the scaled ones
    float* multipliers = nullptr;       ///< of the weights
    const float* cotangents = nullptr;  ///< sums: the gradients of the new scores
    std::int64_t stride = 0;
    std::int64_t rows = 0;
    std::int64_t lanes = 0;  ///< existing lanes; the last block has fewer than `stride`
    float scale = 1;
    // First values of the counters of the four axes.
    std::int64_t sequence = 0, head = 0, query = 0, key = 0;
    /// By operand: the element of the first row and lane.
    const std::byte* const* operands = nullptr;
    const std::int64_t* operand_rows = nullptr;  ///< by operand: elements from one row to the next
    /// Sums, by gradient: the element of the first row and lane that contributions are added to.
    float* const* gradients = nullptr;
    const std::int64_t* gradient_rows = nullptr;  ///< by gradient: elements from one row to the next
};

using ScoreFunction = void (*)(const ScoreBlock*);

}  // namespace mantissa::codegen
