// A few rows of bytes times the rows of a matrix of four bits by groups, straight from where the matrix lies:
// bound by memory, so nothing is packed. Plain data, since sources compiled for one instruction set include
// it.
#pragma once

#include <cstdint>

#include "mantissa/numerics/sixteen_bit.h"

namespace mantissa::inline v0::on_cpu {

/// Groups that these kernels do together.
constexpr std::int64_t groups_together = 8;

/// Where a group stands among the eight: vectors hold two groups each, and their first halves come first.
constexpr std::int64_t place_of_group(std::int64_t group) { return group % 2 * 4 + group % 8 / 2; }

/// A row of x as these kernels read it, filled up with zeros to whole eights of groups.
struct GroupedRow {
    /// By pairs of groups: of even place of the pair's 64 numbers, then those of odd place.
    const std::int8_t* numbers = nullptr;
    /// -8 times the sum of each group's numbers, since numbers of the matrix come 8 too large; eight by
    /// eight.
    const std::int32_t* corrections = nullptr;
    const float* scales = nullptr;  ///< of the groups, eight by eight
};

/// sums[r * leading + j] = the sum over groups of scale of x * scale of b * (whole product of the group).
struct GroupedRows {
    const GroupedRow* rows = nullptr;
    std::int64_t count = 0;
    const std::uint8_t* b = nullptr;  // [cols, bytes]
    const BF16* scales = nullptr;     // [cols, groups]
    std::int64_t bytes = 0;           ///< of a row of b, without gaps between rows
    std::int64_t groups = 0;
    std::int64_t cols = 0;
    float* sums = nullptr;
    std::int64_t leading = 0;
};

using GroupedRowsKernel = void (*)(const GroupedRows& product);

void grouped_rows_generic(const GroupedRows& product);
void grouped_rows_avx2(const GroupedRows& product);

}  // namespace mantissa::on_cpu
