// When each launch of a step ran, and when each thread worked: what a trace shows.
#pragma once

#include <memory>
#include <vector>

#include "mantissa/runtime/execution.h"

namespace mantissa::inline v0 {

/// One run of a plan, which must outlive this.
struct TimedRun {
    const Plan* plan = nullptr;
    double begin = 0;  ///< of the first launch, seconds since the recording began
    Profile launches;  ///< seconds of each, in the order of Plan::nodes(); one follows on the other
};

struct Timeline {
    std::vector<TimedRun> runs;
    std::vector<ThreadWork> threads;  ///< in the launches of these runs
    double seconds = 0;               ///< from the beginning to the end of the recording
};

/// Records runs, one after another.
class TimelineRecorder {
  public:
    /// Begins the recording.
    explicit TimelineRecorder(Device& device) : device_(device), begin_(device.record()) {}

    /// Runs everything as Execution::run does, and records it.
    void run(Execution& execution);

    /// Ends the recording.
    Timeline finish();

  private:
    Device& device_;
    std::unique_ptr<Event> begin_;
    Timeline timeline_;
};

}  // namespace mantissa
