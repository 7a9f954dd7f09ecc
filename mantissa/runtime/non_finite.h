// Where a run first went wrong: the operation that read or made the first number that is not finite; and how
// much of the gradients a 16-bit format loses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "mantissa/runtime/execution.h"

namespace mantissa::inline v0 {

struct NonFinite {
    /// Whether the tensor was not finite before the run (a state or an input, read by the operation), or the
    /// operation made it so.
    enum class Source : std::uint8_t { state, input, operation } source = Source::operation;
    std::string tensor;  ///< the name of the state or input, or as in "%12"
    Type type;
    std::int64_t element = 0;  ///< the first one, in row-major order
    double value = 0;
    std::string op;
    Origin origin;

    /// As in "matmul %12 in h.0.attn.c_attn (forward, layers.cpp:33) made inf: element [0, 3] of f32[8, 96]",
    /// or "wte.weight holds nan: element [7, 0] of f32[512, 128], read first by embedding (forward,
    /// gpt2.cpp:70)".
    std::string text() const;
};

/// Runs the plan operation by operation until a number that is not finite is found; operations and updates
/// behind it are not run. Without such a number the run is made whole.
///
/// Intended infinities are no finding: a constant's, as in a mask, and the results of element-wise operations
/// and movement on them. A NaN always is. Nothing of a stage behind `last` is run.
std::optional<NonFinite> run_to_first_non_finite(Execution& execution, Stage last = Stage::update);

/// Elements of the backward pass that are zero, and are not where the loss is scaled up. So it is seen
/// wherever it happens, in a cast or inside of an operation that writes 16 bits.
struct Underflow {
    std::int64_t elements = 0;  ///< that are stored in 16 bits and should not be zero
    std::int64_t lost = 0;      ///< of those, that are zero

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

/// The numbers of a step that the same step with a larger loss scale does not lose; 0 of 0 where that is not
/// all finite.
Underflow underflow_between(const RoundedGradients& step, const RoundedGradients& scaled_up);

}  // namespace mantissa
