// The sizes of a convolution of images, as its operations' operands and attributes have them.
//
// Images are NHWC, filters [R, S, C / groups, K]. Output (n, i, j, k) sums x(n, y, z, c) filter(r, s, c, k)
// over r, s and c. The row y is i stride_h - top + r dilation_h, and the column z is j stride_w - left + s
// dilation_w. x is zero outside of the image, and c runs over the channels of k's group.
#pragma once

#include <cstdint>
#include <span>

#include "mantissa/graph/attributes.h"
#include "mantissa/graph/convolution_axis.h"
#include "mantissa/graph/type.h"

namespace mantissa::inline v0 {

struct Convolution {
    std::int64_t images = 0;    ///< N
    std::int64_t channels = 0;  ///< C of x
    std::int64_t filters = 0;   ///< K of y
    std::int64_t groups = 1;
    ConvolutionAxis vertical, horizontal;

    std::int64_t group_channels() const { return channels / groups; }
    std::int64_t group_filters() const { return filters / groups; }
    /// Products that are added up for each output.
    std::int64_t depth() const { return vertical.filter * horizontal.filter * group_channels(); }

    Shape x_shape() const { return {images, vertical.image, horizontal.image, channels}; }
    Shape filter_shape() const { return {vertical.filter, horizontal.filter, group_channels(), filters}; }
    Shape y_shape() const { return {images, vertical.output, horizontal.output, filters}; }
};

/// The convolution of conv2d(x, filter), conv2d_input_gradient(dy, filter) or conv2d_filter_gradient(x, dy).
/// The attributes tell which: only the second has `extents`, of x, and only the third a `window`. Throws
/// UserError, with the expectation and the operand, where operands and attributes make no convolution.
Convolution convolution_of(std::span<const Type> inputs, const Attributes& attributes);

}  // namespace mantissa
