// Depthwise convolutions of images [N, H, W, C], as plain data: each filter sees one channel alone. Sizes are
// part of a kernel.
//
// A thread has neighbouring channels, and columns side by side: the numbers that it reads of a row of the
// images serve several of its results. Windows and images' gradients are whole in a thread. Of a filter's
// gradient each thread has some taps of one row of the filter, and adds up a part of all pixels; another
// kernel adds the parts. Sums are FP32 and have one order.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "mantissa/codegen/image_kernel.h"

namespace mantissa::inline v0::codegen {

/// Parameters: the convolution's. For a filter's gradient the third is the address of its sums over parts of
/// the pixels, f32 [parts, R, S, C].
struct DepthwiseKernel {
    ConvolutionKernel convolution;  ///< of groups of one channel and one filter
    std::int64_t channels = 1;      ///< of a thread, at a multiple of their bytes: 1, or 2 of 16 bits
    std::int64_t side_by_side = 1;  ///< threads along the channels before the next row's: a divisor
    /// Columns of the output that a thread has at a time; of the images, for their gradient.
    std::int64_t columns = 1;
    std::int64_t taps = 1;  ///< neighbours of a filter's row that a thread has: all but for its gradient
    // A filter's gradient is added up over strips of so many columns.
    std::int64_t rows_of_strip = 1;
    std::int64_t strips_of_part = 1;  ///< that a thread adds up

    const Convolution& of() const { return convolution.of; }
    bool makes(ConvolutionResult result) const { return convolution.makes == result; }
    /// Threads along all channels.
    std::int64_t threads_across() const { return of().channels / channels; }
    /// Columns that are gone over in steps of `columns`.
    std::int64_t columns_of_all() const;
    std::int64_t column_steps() const;
    /// The distance that met columns move from one step to the next.
    std::int64_t step_of_met() const;
    /// The column that a column of a step meets by a tap, counted as the first step counts.
    std::optional<std::int64_t> met(std::int64_t column, std::int64_t tap) const;
    std::set<std::int64_t> all_met() const;

    std::int64_t pieces_of_row() const;  ///< of a filter, `taps` long
    std::int64_t pixels_of_strip() const { return rows_of_strip * columns; }
    std::int64_t strips_of_column() const;  ///< one below the other
    std::int64_t strips() const;
    std::int64_t parts() const;
    std::int64_t threads() const;
};

std::string text_of(const DepthwiseKernel& kernel);

/// Why there is no such kernel; empty if there is.
std::string refuse_depthwise(const ConvolutionKernel& convolution);

/// `askew`: operands may begin at any of their elements, not at multiples of 16 bytes.
DepthwiseKernel depthwise_kernel(const ConvolutionKernel& convolution, bool askew);

}  // namespace mantissa::codegen
