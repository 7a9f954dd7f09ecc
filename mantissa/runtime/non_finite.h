// Where a run first went wrong: the operation that read or made the first number that is not finite.
#pragma once

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

}  // namespace mantissa
