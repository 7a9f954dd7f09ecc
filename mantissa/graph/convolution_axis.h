// Sizes along one axis of images over which a filter moves. Plain data, since files compiled for one
// instruction set include it.
#pragma once

#include <cstdint>

namespace mantissa::inline v0 {

struct ConvolutionAxis {
    std::int64_t image = 0;   ///< H or W of x
    std::int64_t output = 0;  ///< of y
    std::int64_t filter = 0;  ///< R or S
    std::int64_t stride = 1;
    std::int64_t dilation = 1;  ///< negative where a gradient is gathered
    std::int64_t before = 0;    ///< imagined zeros before the image, and behind it
    std::int64_t behind = 0;

    /// The place in the image that element `tap` of the filter meets for an output; perhaps outside of it.
    std::int64_t image_place(std::int64_t place, std::int64_t tap) const {
        return place * stride - before + tap * dilation;
    }
};

}  // namespace mantissa
