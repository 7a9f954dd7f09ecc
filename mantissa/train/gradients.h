// Gradients of a training step by parameter, shown while the step runs: nothing runs twice or is kept longer
// for it.
#pragma once

#include <string>

#include "mantissa/base/function_ref.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/train/trainer.h"

namespace mantissa::inline v0 {

/// Receives a parameter's gradient, readable from the execution until this returns. It covers the whole step,
/// with micro-batches added up, before clipping, and still contains the loss scale.
using ShowGradient = FunctionRef<void(const std::string& parameter, Value gradient)>;

/// Runs the last micro-batch of a training step to its end and shows every gradient, in the order of the
/// parameters. With a profile, times each kernel. Returns the seconds spent showing. Throws UserError where
/// states are sharded, since a rank then has only parts of gradients.
double run_showing_gradients(Execution& last, ShowGradient show, Profile* profile = nullptr);

}  // namespace mantissa
