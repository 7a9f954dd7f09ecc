// A single row times the rows of a matrix of whole numbers, straight from where the matrix lies: bound by
// memory, so nothing is packed. Plain data, since sources compiled for one instruction set include it.
#pragma once

#include <cstdint>

namespace mantissa::inline v0::on_cpu {

/// Rows are read in steps of so many bytes; what lies behind the depth of `row` is zero.
constexpr std::int64_t row_mode_step = 64;

/// sums[j] = sum over k of row[k] * b(j, k), exactly.
struct RowMode {
    /// For bytes: the numbers of the row, filled up with zeros to whole steps. For half bytes: those of even
    /// place so, then those of odd place, each filled up.
    const std::int8_t* row = nullptr;
    std::int32_t row_sum = 0;         ///< of all numbers of the row
    const std::uint8_t* b = nullptr;  // [cols, bytes]
    std::int64_t bytes = 0;           ///< of a row of b, without gaps between rows
    std::int64_t cols = 0;
    std::int32_t* sums = nullptr;  // [cols]
};

using RowModeKernel = void (*)(const RowMode& product);

struct RowModeKernels {
    const char* name = "";
    RowModeKernel s8 = nullptr;
    RowModeKernel s4 = nullptr;
};

RowModeKernels row_mode_generic();
RowModeKernels row_mode_avx2();
RowModeKernels row_mode_avx512_vnni();

}  // namespace mantissa::on_cpu
