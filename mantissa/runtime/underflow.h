// How much of the gradients a 16-bit format loses: elements that are not zero before the casts of the
// backward pass, and are after.
#pragma once

#include <cstdint>

#include "mantissa/runtime/execution.h"

namespace mantissa {

struct Underflow {
    std::int64_t elements = 0;  ///< that are not zero and are cast
    std::int64_t lost = 0;      ///< of those, that became zero

    double share() const {
        return elements == 0 ? 0 : static_cast<double>(lost) / static_cast<double>(elements);
    }
};

/// Runs the plan up to its first operation of the update, which changes no state, and looks at every cast
/// from FP32 to 16 bits, and every rounding of a simulation, in the backward pass. What underflows inside of
/// an operation that writes 16 bits is not seen.
Underflow gradient_underflow(Execution& execution);

}  // namespace mantissa
