// A few rows times a matrix, straight from the matrix's place: packing it would cost as much as reading it
// again and again. Plain data, since sources compiled for one instruction set include it.
#pragma once

#include <array>
#include <cstdint>

namespace mantissa::inline v0::on_cpu {

/// sums[r][j] = sum over k of rows[r][k] * b(k, j). A row's bits do not depend on the other rows.
struct RowProduct {
    const void* rows = nullptr;   ///< FP32, or the kernel's own type
    std::int64_t row_stride = 0;  ///< in elements
    std::int64_t count = 1;       ///< of rows
    const void* b = nullptr;
    /// The distance between stored rows of b, in elements.
    std::int64_t stride = 0;
    std::int64_t depth = 0;
    std::int64_t cols = 0;
    float* sums = nullptr;
    std::int64_t sums_stride = 0;
};

using RowProductKernel = void (*)(const RowProduct& product);

/// [PanelSource][0 FP32, 1 BF16]: columns of b run along the depth, each a stored row; or across it.
using RowProductKernels = std::array<std::array<RowProductKernel, 2>, 2>;

/// Several rows of BF16 in place times columns of BF16 that run along the depth. Not a row alone: its bits
/// would differ from a row's among several, and it gains nothing, since it waits for memory.
RowProductKernel row_product_of_pairs_avx512_bf16();

RowProductKernels row_product_generic();
RowProductKernels row_product_avx2();
RowProductKernels row_product_avx512();

}  // namespace mantissa::on_cpu
