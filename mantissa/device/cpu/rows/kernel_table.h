// One table of row kernels per instruction-set level: serial functions over a part of a problem. Who runs
// which part on which thread is decided in the drivers beside this file, from shapes alone. All levels give
// the same bits. Plain data without functions, since files compiled for one instruction set include it.
#pragma once

#include <cstdint>

#include "mantissa/device/cpu/rows/problems.h"

namespace mantissa::inline v0::on_cpu {

/// Rows, elements or columns [first, last).
struct Range {
    std::int64_t first = 0;
    std::int64_t last = 0;
};

/// Equal pieces of memory, `count` groups of `group` pieces, at equal distances.
struct Runs {
    const void* source = nullptr;
    void* target = nullptr;
    std::int64_t bytes = 0;  ///< of one run
    std::int64_t count = 1;
    std::int64_t source_stride = 0;  ///< bytes from one group to the next
    std::int64_t target_stride = 0;
    std::int64_t group = 1;
    std::int64_t source_step = 0;  ///< bytes from one run of a group to the next
    std::int64_t target_step = 0;
};

/// target[c * target_stride + r] = source[r * source_stride + c], strides in elements of 2 or 4 bytes.
struct TransposedPart {
    const void* source = nullptr;
    void* target = nullptr;
    int element_size = 4;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t source_stride = 0;
    std::int64_t target_stride = 0;
};

struct RowKernels {
    const char* name;  ///< of the level
    /// Writes the sums over these rows to `dgamma` and `dbeta`, [C] each.
    void (*layer_norm_grad)(const LayerNormGrad&, Range rows, Stores, float* dgamma, float* dbeta);
    /// exp(x - max) / sum(exp(x - max)), in place. A row of -infinity, or with a NaN, gives NaN.
    void (*softmax)(float* x, std::int64_t count);
    /// limit tanh(x / limit), in place.
    void (*cap)(float* x, std::int64_t count, float limit);
    /// Per row only: the mean is the driver's.
    void (*cross_entropy)(const CrossEntropy&, Range rows);
    void (*cross_entropy_grad)(const CrossEntropyGrad&, Range rows, Stores);
    void (*gelu_grad)(const GeluGrad&, Range elements, Stores);
    void (*rotary)(const Rotary&, Range tokens, Stores);
    void (*embedding)(const Embedding&, Range tokens, Stores);
    /// Takes tokens that lie by rows in the workspace.
    void (*embedding_grad)(const EmbeddingGrad&, Range rows, Stores);
    double (*squared_norm)(const SquaredNorm&, Range elements);
    /// Writes the sums over `rows` of `columns` to sum[0 ... columns.last - columns.first).
    void (*column_sum)(const ColumnSum&, Range rows, Range columns, float* sum);
    void (*running_sums)(const RunningSums&, Range rows, Stores);
    void (*copy)(const Runs&, Stores);
    void (*transpose)(const TransposedPart&, Stores);
    /// Pools: rows of outputs, counted over all images; of gradients, rows of the image.
    void (*max_pool)(const MaxPool&, Range rows, Stores);
    void (*max_pool_grad)(const MaxPoolGrad&, Range rows, Stores);
    void (*average_pool)(const AveragePool&, Range rows, Stores);
    void (*average_pool_grad)(const AveragePoolGrad&, Range rows, Stores);
    /// The deviation of these rows of these columns: how far the mean is from the first row, and the sum of
    /// the squared differences from the mean. The former tells more than the mean in FP32, where the mean is
    /// large. [columns.last - columns.first] each.
    void (*moments)(const Moments&, Range rows, Range columns, const MomentsOfPart& part);
    void (*normalize)(const Normalize&, Range rows, Stores);
    /// Sums of dy and of dy (x - mean) over these rows of these columns.
    void (*batch_norm_grad_sums)(const BatchNormGrad&, Range rows, Range columns, float* sum_dy,
                                 float* sum_dy_x);
    void (*batch_norm_grad)(const BatchNormGrad&, const BatchNormGradScales&, Range rows, Stores);
};

const RowKernels& row_kernels_generic();
const RowKernels& row_kernels_avx2();
const RowKernels& row_kernels_avx512();
const RowKernels& row_kernels_avx512bf16();

}  // namespace mantissa::on_cpu
