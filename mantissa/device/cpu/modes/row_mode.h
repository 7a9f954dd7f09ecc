// A few rows of bytes times the rows of a matrix of bytes, straight from where the matrix lies: bound by
// memory, so nothing is packed. Plain data, since sources compiled for one instruction set include it.
#pragma once

#include <cstdint>

namespace mantissa::inline v0::on_cpu {

/// Rows are read in steps of so many bytes; what lies behind the depth of `rows` is zero.
constexpr std::int64_t row_mode_step = 64;

/// sums[r * leading + j] = sum over k of row r [k] * b(j, k), exactly. No number is -128.
struct RowMode {
    const std::int8_t* rows = nullptr;       ///< each filled up with zeros to whole steps
    std::int64_t row_stride = 0;             ///< bytes from one to the next
    const std::int32_t* row_sums = nullptr;  ///< of all numbers of each
    std::int64_t count = 0;
    const std::uint8_t* b = nullptr;  // [cols, bytes]
    std::int64_t bytes = 0;           ///< of a row of b, without gaps between rows
    std::int64_t cols = 0;
    std::int32_t* sums = nullptr;
    std::int64_t leading = 0;
};

using RowModeKernel = void (*)(const RowMode& product);

struct RowModeKernels {
    const char* name = "";
    RowModeKernel s8 = nullptr;
};

RowModeKernels row_mode_generic();
RowModeKernels row_mode_avx2();
RowModeKernels row_mode_avx512_vnni();

}  // namespace mantissa::on_cpu
