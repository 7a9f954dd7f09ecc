// A few rows of bytes times the rows of a matrix of four bits by groups, straight from where the matrix lies:
// bound by memory, so nothing is packed. Plain data, since sources compiled for one instruction set include
// it.
#pragma once

#include <cstdint>

#include "mantissa/numerics/sixteen_bit.h"

namespace mantissa::inline v0::on_cpu {

/// Groups that these kernels do together.
constexpr std::int64_t groups_together = 4;
/// Words that four groups of a row of the matrix have. Each word has sums of its own.
constexpr std::int64_t words_together = 16;
constexpr std::int64_t numbers_together = 8 * words_together;
constexpr std::int64_t bytes_together = 4 * words_together;

/// Four groups of a row of x. Those of all rows that are multiplied lie beside each other, so that kernels
/// need one address for them.
struct alignas(64) FourOfX {
    std::int8_t even[numbers_together / 2];  ///< those of even place of the four's 128 numbers
    std::int8_t odd[numbers_together / 2];
    /// For each word of the matrix, -8 times the sum of the eight numbers that it meets, since the word's own
    /// numbers are 8 too large.
    std::int32_t corrections[words_together];
    float scales[words_together];  ///< for each word that of its group
};

/// sums[r * leading + j] = the sum over groups of scale of x * scale of b * (whole product of the group).
struct GroupedRows {
    const FourOfX* x = nullptr;       // [fours, count], filled up with zeros to whole fours
    std::int64_t count = 0;           ///< of rows
    const std::uint8_t* b = nullptr;  // [cols, bytes]
    const BF16* scales = nullptr;     // [cols, groups]
    std::int64_t bytes = 0;           ///< of a row of b, without gaps between rows
    std::int64_t groups = 0;
    std::int64_t cols = 0;
    /// Bytes from the end of these columns to those that the same thread multiplies next, most likely:
    /// kernels fetch these.
    std::int64_t to_next_block = 0;
    float* sums = nullptr;
    std::int64_t leading = 0;
};

using GroupedRowsKernel = void (*)(const GroupedRows& product);

void multiply_grouped_rows_generic(const GroupedRows& product);
void multiply_grouped_rows_avx2(const GroupedRows& product);
void multiply_grouped_rows_avx512_vnni(const GroupedRows& product);

}  // namespace mantissa::on_cpu
