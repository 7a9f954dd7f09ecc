// Shared by quantised products: rows widened to FP32, their scales, and how few rows share out a matrix.
#pragma once

#include <cstdint>

#include "mantissa/device/cpu/rows/problems.h"

namespace mantissa::inline v0::on_cpu {

/// `count` elements of x from `first` on, f32, bf16 or f16.
void widen(ConstView x, std::int64_t first, std::int64_t count, float* to);

struct RowScale {
    float factor, scale;
};

/// By which the largest absolute value becomes `most`, and back; both 0 for a row of zeros.
RowScale scale_of(const float* x, std::int64_t count, float most);

/// Rows of a matrix [n, bytes of a row] that a block multiplies with few rows.
std::int64_t columns_of_few_rows(std::int64_t n, std::int64_t bytes);

}  // namespace mantissa::on_cpu
