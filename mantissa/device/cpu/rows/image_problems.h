// The problems that kernels over images solve: pools and batch normalisation. As problems.h: sizes, types and
// pointers, without functions. Images are [N, H, W, C], row-major and dense; channels are the last axis.
#pragma once

#include "mantissa/device/cpu/rows/problems.h"
#include "mantissa/graph/pool_span.h"

namespace mantissa::inline v0::on_cpu {

/// The sizes of a pool, and where its windows lie.
struct PoolShape {
    std::int64_t images = 0;
    std::int64_t rows = 0, columns = 0;                ///< of an image
    std::int64_t output_rows = 0, output_columns = 0;  ///< of what is made of it
    std::int64_t channels = 0;
    const PoolSpan* row_spans = nullptr;          // [output_rows]
    const PoolSpan* column_spans = nullptr;       // [output_columns]
    const PoolOutputs* row_outputs = nullptr;     // [rows]; gradients only
    const PoolOutputs* column_outputs = nullptr;  // [columns]; gradients only
    std::int64_t window_columns = 0;              ///< maxima only: elements in a row of a window
};

/// y = the largest element of each window; NaN wins. index: which element, in row-major order; the first of
/// equals.
struct MaxPool {
    PoolShape shape;
    ConstView x = {};               // [N, H, W, C]
    View y = {};                    // [N, P, Q, C]
    std::uint8_t* index = nullptr;  // [N, P, Q, C]
};

/// dx = the sum of dy over the windows whose maximum was the element.
struct MaxPoolGrad {
    PoolShape shape;
    ConstView dy = {};                    // [N, P, Q, C]
    const std::uint8_t* index = nullptr;  // [N, P, Q, C]
    View dx = {};                         // [N, H, W, C]
};

/// y = the sum of each window over its count.
struct AveragePool {
    PoolShape shape;
    ConstView x = {};  // [N, H, W, C]
    View y = {};       // [N, P, Q, C]
};

/// dx = the sum of dy over its count, over all windows that the element lies in.
struct AveragePoolGrad {
    PoolShape shape;
    ConstView dy = {};  // [N, P, Q, C]
    View dx = {};       // [N, H, W, C]
};

/// dx = dy where y is above 0 or NaN, else 0.
struct ReluGrad {
    std::int64_t count = 0;
    ConstView dy = {};  // [count]
    ConstView y = {};   // [count]
    View dx = {};       // [count]
};

/// Columns of which a part of a sum over rows has at most so many.
inline constexpr std::int64_t columns_of_part = 256;

/// The mean and the biased variance of each channel, and 1 / sqrt(variance + eps).
struct Moments {
    std::int64_t rows = 0;  ///< of [rows, C]: all axes but the last
    std::int64_t channels = 0;
    float eps = 1e-5f;
    ConstView x = {};            // [rows, C]
    float* mean = nullptr;       // [C]
    float* variance = nullptr;   // [C]
    float* rstd = nullptr;       // [C]
    float* workspace = nullptr;  ///< moments_workspace() bytes
};

/// Numbers of some rows, for each column: the first row, the mean of the differences from it, and the sum of
/// squares of the differences from the mean.
struct MomentsOfPart {
    float* first_row = nullptr;
    float* off_first = nullptr;
    float* squares = nullptr;
};

/// y = (x - mean) * (rstd * gamma) + beta.
struct Normalize {
    std::int64_t rows = 0;
    std::int64_t channels = 0;
    ConstView x = {};              // [rows, C]
    const float* mean = nullptr;   // [C]
    const float* scale = nullptr;  // [C]: rstd * gamma
    const float* beta = nullptr;   // [C]
    View y = {};                   // [rows, C]
};

/// dx = scale * (dy - mean(dy) - (x - mean) * rstd^2 * mean(dy (x - mean))), where scale is rstd * gamma.
/// dgamma = rstd * sum(dy (x - mean)) and dbeta = sum(dy).
struct BatchNormGrad {
    std::int64_t rows = 0;
    std::int64_t channels = 0;
    ConstView dy = {};             // [rows, C]
    ConstView x = {};              // [rows, C]
    const float* gamma = nullptr;  // [C]
    const float* mean = nullptr;   // [C]
    const float* rstd = nullptr;   // [C]
    View dx = {};                  // [rows, C]
    float* dgamma = nullptr;       // [C]
    float* dbeta = nullptr;        // [C]
    float* workspace = nullptr;    ///< batch_norm_grad_workspace() bytes
};

/// The factors of the second walk of a batch norm's gradient, a number a channel: dx = scale * ((dy -
/// mean_dy) - (x - mean) * slope).
struct BatchNormGradScales {
    const float* scale = nullptr;    // [C]
    const float* mean_dy = nullptr;  // [C]
    const float* slope = nullptr;    // [C]
};

}  // namespace mantissa::on_cpu
