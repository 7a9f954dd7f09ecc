// The gradients of a training step by parameter, shown while the step runs: nothing runs twice for it, and
// nothing is kept longer.
#pragma once

#include <string>

#include "mantissa/base/function_ref.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/train/trainer.h"

namespace mantissa::inline v0 {

/// Shown a parameter's gradient, which can be read from the execution until this returns. It is that of the
/// whole step, micro-batches added up, before clipping; the loss scale is still in it.
using ShowGradient = FunctionRef<void(const std::string& parameter, Value gradient)>;

/// Runs the last micro-batch of a training step to its end, and shows every gradient on the way, in the order
/// of the parameters. With a profile, times each kernel. Returns the seconds that showing took. Throws
/// UserError where states are sharded, since a rank then has parts of gradients.
double run_showing_gradients(Execution& last, ShowGradient show, Profile* profile = nullptr);

}  // namespace mantissa
