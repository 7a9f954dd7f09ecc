// Matrices of which at most two of every four neighbours in a row are not zero (2:4 sparse): pruning to that
// form, and storing it in half the numbers.
//
// Compressed, a row of k numbers is k / 2 values and k / 4 pairs of positions, four bits each, two pairs to a
// byte, the first in the lower half: bits 0 and 1 say where in its four the first value stood, bits 2 and 3
// the second, which comes after it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0::on_cpu {

enum class SparseFormat : std::uint8_t { f32, f16, bf16, s8, s4 };

/// The format of f32, f16 or bf16; throws InternalError for another type.
SparseFormat sparse_format_of(DType type);

/// Sizes of `rows` rows of `k` numbers, dense and compressed, in bytes. Throws UserError where k is not a
/// multiple of 4, as prune() and compress() do.
struct SparseSizes {
    std::size_t dense = 0;
    std::size_t values = 0;
    std::size_t positions = 0;
};

SparseSizes sparse_sizes(SparseFormat format, std::int64_t rows, std::int64_t k);

/// Of every four neighbours keeps the two of greatest magnitude, the earlier where they are equal, and makes
/// zeros of the others. A NaN is kept before all else.
void prune(SparseFormat format, void* matrix, std::int64_t rows, std::int64_t k);

/// Throws UserError, naming row and columns, where more than two of four are not zero. A NaN is not zero.
void compress(SparseFormat format, const void* matrix, std::int64_t rows, std::int64_t k, void* values,
              std::uint8_t* positions);

/// Where in its four value `index` of a row stands.
inline int position_of(const std::uint8_t* positions, std::int64_t index) {
    return positions[index / 4] >> (index % 4 * 2) & 3;
}

/// One row back into k numbers, a multiple of 4. Of a part of a row, too, that begins at a multiple of 8.
void decompress_row(SparseFormat format, const void* values, const std::uint8_t* positions, std::int64_t k,
                    void* row);

}  // namespace mantissa::on_cpu
