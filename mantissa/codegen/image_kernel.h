// Pools and convolutions of images [N, H, W, C], as plain data: a thread makes one element of the output, and
// reads its elements in the order of memory. Sizes are part of a kernel.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/graph/convolution.h"
#include "mantissa/graph/pool_span.h"
#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0::codegen {

enum class PoolResult : std::uint8_t { maximum, average, gradient_of_maximum, gradient_of_average };

/// A pool, or its gradient. Parameters: the operands' addresses and the outputs', in the operation's order:
/// x, y and, for maxima, u8 which element of its window each is; dy, for maxima that u8, and dx.
struct PoolKernel {
    PoolResult makes = PoolResult::maximum;
    DType dtype = DType::f32;
    std::int64_t images = 0, channels = 0;
    std::vector<PoolSpan> row_spans = {}, column_spans = {};  ///< by output
    /// By row and by column of the image: the outputs whose windows it lies in. Only gradients read them.
    std::vector<PoolOutputs> row_outputs = {}, column_outputs = {};
    std::int64_t window_columns = 0;  ///< of maxima

    bool is_gradient() const { return makes >= PoolResult::gradient_of_maximum; }
    bool is_maximum() const {
        return makes == PoolResult::maximum || makes == PoolResult::gradient_of_maximum;
    }
    /// Elements of the result.
    std::int64_t results() const;
};

std::string text_of(const PoolKernel& kernel);

enum class ConvolutionResult : std::uint8_t { output, gradient_of_images, gradient_of_filter };

/// One of the three products of a convolution (graph/convolution.h), one multiply-add after the other in
/// FP32: it takes any sizes, and is slow. Parameters: the operands' addresses and the output's, as the
/// operation has them.
struct ConvolutionKernel {
    ConvolutionResult makes = ConvolutionResult::output;
    Convolution of = {};
    DType from = DType::f32, to = DType::f32;
    bool tf32 = false;               ///< operands are rounded to TF32 first
    std::optional<DType> bias = {};  ///< that is added to an output

    std::int64_t results() const;
};

std::string text_of(const ConvolutionKernel& kernel);

}  // namespace mantissa::codegen
