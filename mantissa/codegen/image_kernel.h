// Pools and convolutions of images [N, H, W, C], as plain data: a thread makes one element of the output, out
// of the elements that it looks at in the order in which they lie. Sizes are part of a kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/graph/pool_span.h"
#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0::codegen {

/// A pool, or its gradient. Parameters: the operands' addresses and the outputs', in the operation's order:
/// x, y and, of maxima, u8 which element of its window each is; dy, of maxima that, and dx.
struct PoolKernel {
    enum class Makes : std::uint8_t { maximum, average, gradient_of_maximum, gradient_of_average };
    Makes makes = Makes::maximum;
    DType dtype = DType::f32;
    std::int64_t images = 0, channels = 0;
    std::vector<PoolSpan> row_spans = {}, column_spans = {};  ///< by output
    /// By element of the image: how many rows and columns it has. Only gradients read which outputs those
    /// are.
    std::vector<PoolOutputs> row_outputs = {}, column_outputs = {};
    std::int64_t window_columns = 0;  ///< of maxima

    bool is_gradient() const { return makes >= Makes::gradient_of_maximum; }
    bool is_maximum() const { return makes == Makes::maximum || makes == Makes::gradient_of_maximum; }
    /// Elements of what it makes.
    std::int64_t results() const;
};

std::string text_of(const PoolKernel& kernel);

}  // namespace mantissa::codegen
