// Gradient accumulation: a step of several micro-steps as two graphs that share the states `gradient.P`, one
// for each parameter P, and `gradient.loss`. Micro-steps but the last run the first graph, the last runs the
// second; between steps the states are zero.
#pragma once

#include "mantissa/passes/pipeline.h"

namespace mantissa::inline v0 {

/// The update of the first graph: adds gradients (in FP32) and loss to their states, and blends running
/// statistics in theirs (running_statistics.h). No results.
TraceUpdate add_to_gradients();

/// The update of the second: `update` is given what was added up and this micro-step's own; then the states
/// are zero again, whether it was applied or not.
TraceUpdate with_added_gradients(TraceUpdate update);

}  // namespace mantissa
