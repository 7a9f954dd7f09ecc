// A single row times a matrix, straight from where the matrix lies: nothing would be read twice, so nothing
// is packed. Plain data, since sources compiled for one instruction set include it.
#pragma once

#include <array>
#include <cstdint>

namespace mantissa::inline v0::on_cpu {

/// sums[j] = sum over k of row[k] * b(k, j).
struct RowProduct {
    const float* row = nullptr;
    const void* b = nullptr;
    /// From one stored row of b to the next, in elements.
    std::int64_t stride = 0;
    std::int64_t depth = 0;
    std::int64_t cols = 0;
    float* sums = nullptr;
};

using RowProductKernel = void (*)(const RowProduct& product);

/// [PanelSource][0 FP32, 1 BF16]: columns of b run along the depth, each a stored row; or across it.
using RowProductKernels = std::array<std::array<RowProductKernel, 2>, 2>;

RowProductKernels row_product_generic();
RowProductKernels row_product_avx2();
RowProductKernels row_product_avx512();

}  // namespace mantissa::on_cpu
