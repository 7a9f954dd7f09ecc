// How much of the gradients a 16-bit format loses: elements of the backward pass that are zero, but are not
// with a larger loss scale. So a loss is seen wherever it happens, in a cast or inside of an operation that
// writes 16 bits.
#pragma once

#include <cstdint>

#include "mantissa/runtime/execution.h"

namespace mantissa::inline v0 {

struct Underflow {
    std::int64_t elements = 0;  ///< that are stored in 16 bits and should not be zero
    std::int64_t lost = 0;      ///< elements of these that are zero

    double share() const {
        return elements == 0 ? 0 : static_cast<double>(lost) / static_cast<double>(elements);
    }
};

/// The numbers that the backward pass writes in 16 bits, and every rounding of an emulation.
struct RoundedGradients {
    std::int64_t elements = 0;
    std::int64_t zeros = 0;
    bool finite = true;
};

/// Runs the plan up to its first operation of the update, which changes no state.
RoundedGradients rounded_gradients(Execution& execution);

/// The numbers of a step that the same step with a larger loss scale does not lose; 0 of 0 where that step is
/// not all finite.
Underflow underflow_between(const RoundedGradients& step, const RoundedGradients& scaled_up);

}  // namespace mantissa
