// The window that one output of a pool looks at. Plain data, since files compiled for one instruction set
// include it.
#pragma once

#include <cstdint>

namespace mantissa::inline v0 {

/// The window of one output along one axis of the image.
struct PoolSpan {
    std::int64_t start = 0;            ///< of the window; negative in the padding before the image
    std::int64_t first = 0, last = 0;  ///< the part of it inside the image, never empty
    std::int64_t count = 1;            ///< divisor of an average along this axis
};

/// The outputs [first, last) whose windows an element of the axis lies in; none where strides leave it out.
struct PoolOutputs {
    std::int64_t first = 0, last = 0;
};

}  // namespace mantissa
