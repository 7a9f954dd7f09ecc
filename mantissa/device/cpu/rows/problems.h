// The problems that row kernels solve: sizes, types and pointers, nothing else. Plain data without functions,
// since files compiled for one instruction set include it.
//
// Tensors are row-major and dense unless a stride is named. Floating tensors may be F32, BF16 or F16 each;
// all arithmetic is in FP32. A gradient has the shape of its tensor. Outputs may be the very
// memory of an input of the same type (in place), and must not overlap otherwise.
#pragma once

#include <cstdint>

#include "mantissa/graph/pool_span.h"
#include "mantissa/numerics/dtype.h"
#include "mantissa/numerics/sixteen_bit.h"

namespace mantissa::inline v0::on_cpu {

struct ConstView {
    const void* data = nullptr;
    DType type = DType::f32;
};

struct View {
    void* data = nullptr;
    DType type = DType::f32;
};

/// How outputs are stored. Streaming writes past the caches; it changes no bit.
enum class Stores : std::uint8_t { automatic, plain, streaming };

/// Whether a gradient replaces the content of its buffer or is added to it.
enum class Accumulate : std::uint8_t { replace, add };

struct LayerNormGrad {
    std::int64_t rows = 0;
    std::int64_t channels = 0;
    ConstView dy = {};             // [rows, C]
    ConstView x = {};              // [rows, C]
    const float* gamma = nullptr;  // [C]
    const float* mean = nullptr;   // [rows]
    const float* rstd = nullptr;   // [rows]
    View dx = {};                  // [rows, C]
    float* dgamma = nullptr;       // [C]
    float* dbeta = nullptr;        // [C]
    float* workspace = nullptr;    ///< layer_norm_grad_workspace() bytes
};

/// The gradient of 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
struct GeluGrad {
    std::int64_t count = 0;
    ConstView x = {};   // [count]
    ConstView dy = {};  // [count]
    View dx = {};       // [count]
};

/// Turns of each head the pair of elements i and i + D/2 by the angle (t, i) of its token, t counted in its
/// sequence.
struct Rotary {
    std::int64_t tokens = 0;  ///< of all sequences
    std::int64_t sequence = 0;
    std::int64_t heads = 0;
    std::int64_t head_size = 0;     ///< D, even
    const float* cosine = nullptr;  // [sequence, D/2]
    const float* sine = nullptr;    // [sequence, D/2]
    ConstView x = {};               // [tokens, heads, D]
    View y = {};                    // [tokens, heads, D], of x's type
};

/// loss = lse - logits[target], lse = log(sum(exp(logits))) of each row, and their mean.
struct CrossEntropy {
    std::int64_t rows = 0;
    std::int64_t classes = 0;
    std::int64_t stride = 0;  ///< elements between rows; 0 means `classes`. Padding is not read.
    ConstView logits = {};    // [rows, stride], V = classes of them used
    const std::int32_t* targets = nullptr;  // [rows], each in [0, V)
    bool ignore_negative = false;           ///< a target may be below 0: the loss of its row is 0
    float* loss = nullptr;                  // [rows]
    float* lse = nullptr;                   // [rows]
    float* mean_loss = nullptr;             // one number; null: not wanted
};

/// dlogits = (exp(logits - lse) - onehot(target)) * scale, scale = dloss / rows for a mean; padding becomes
/// zero.
struct CrossEntropyGrad {
    std::int64_t rows = 0;
    std::int64_t classes = 0;
    std::int64_t stride = 0;
    ConstView logits = {};                  // [rows, stride]
    const std::int32_t* targets = nullptr;  // [rows]
    bool ignore_negative = false;           ///< a target may be below 0: the gradient of its row is 0
    const float* lse = nullptr;             // [rows]
    float scale = 1;
    View dlogits = {};  // [rows, stride]
};

/// y[t] = table[ids[t]].
struct Embedding {
    std::int64_t tokens = 0;
    std::int64_t vocabulary = 0;
    std::int64_t channels = 0;
    const std::int32_t* ids = nullptr;  // [tokens], each in [0, vocabulary)
    ConstView table = {};               // [vocabulary, C]
    View y = {};                        // [tokens, C]
};

/// y_c = x_0 + ... + x_c, or x_c + ... of the last column, in each row.
struct RunningSums {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    bool from_end = false;
    const float* x = nullptr;  // [rows, columns]
    float* y = nullptr;        // [rows, columns]
};

/// dtable[ids[t]] += dy[t], tokens in ascending order.
struct EmbeddingGrad {
    std::int64_t tokens = 0;
    std::int64_t vocabulary = 0;
    std::int64_t channels = 0;
    const std::int32_t* ids = nullptr;  // [tokens]
    ConstView dy = {};                  // [tokens, C]
    float* dtable = nullptr;            // [vocabulary, C]
    Accumulate accumulate = Accumulate::replace;
    std::int32_t* workspace = nullptr;  ///< embedding_grad_workspace() bytes

    /// In the workspace, once the driver has sorted: where the tokens of each row begin, [vocabulary + 1],
    /// and the tokens by rows, [tokens].
    const std::int32_t* first_of_row() const { return workspace; }
    const std::int32_t* tokens_by_row() const { return workspace + vocabulary + 2; }
};

/// Sum of the squares of all elements, in FP64.
struct SquaredNorm {
    std::int64_t count = 0;
    ConstView x = {};             // [count]
    double* workspace = nullptr;  ///< squared_norm_workspace() bytes
};

/// sum[c] = x[0, c] + ... + x[rows - 1, c]: the gradient of a bias.
struct ColumnSum {
    std::int64_t rows = 0;
    std::int64_t channels = 0;
    ConstView x = {};            // [rows, C]
    float* sum = nullptr;        // [C]
    float* workspace = nullptr;  ///< column_sum_workspace() bytes
};

struct Copy {
    std::int64_t bytes = 0;
    const void* source = nullptr;
    void* target = nullptr;
};

/// Rows of `bytes` bytes each, at equal distances on either side.
struct CopyRows {
    std::int64_t rows = 0;
    std::int64_t bytes = 0;
    std::int64_t source_stride = 0;  ///< in bytes
    std::int64_t target_stride = 0;
    const void* source = nullptr;
    void* target = nullptr;
};

/// target axis k is source axis axes[k].
struct Permute {
    static constexpr int max_rank = 5;
    int rank = 0;
    std::int64_t extents[max_rank] = {};  ///< of the source
    int axes[max_rank] = {};
    int element_size = 4;  ///< 2 or 4 bytes
    const void* source = nullptr;
    void* target = nullptr;
};

/// The sizes of a pool, and where its windows lie. Images are [N, H, W, C], row-major and dense.
struct PoolShape {
    std::int64_t images = 0;
    std::int64_t rows = 0, columns = 0;                ///< of an image
    std::int64_t output_rows = 0, output_columns = 0;  ///< of the result
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
