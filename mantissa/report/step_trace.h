// A training step as a trace: its launches in order, and which threads worked when for which of them.
#pragma once

#include <string>

#include "mantissa/runtime/timeline.h"

namespace mantissa::inline v0 {

/// The file of a step's timeline, one run a micro-batch; trace_events.h says what opens it. Tracks: the step
/// with its micro-batches, the launches, and one for each thread. `title`: of the whole; `step`: of the step.
/// What a kernel does outside of the pool's loops is on no thread's track.
std::string step_trace(const Timeline& timeline, const std::string& title, const std::string& step);

}  // namespace mantissa
