// When each launch of a step ran, and when each thread worked, in Chrome's Trace Event Format, which Perfetto
// (ui.perfetto.dev) and chrome://tracing open: named tracks with events that begin and last.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/device/device.h"
#include "mantissa/report/report.h"
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

/// Something that lasted, on one track. Times are in seconds since the trace began.
struct TraceEvent {
    int track = 0;
    std::string name, category;
    double begin = 0, seconds = 0;
    Fields arguments = {};  ///< shown when one points at it
};

class TraceEvents {
  public:
    /// `title`: of all tracks.
    explicit TraceEvents(std::string title) : title_(std::move(title)) {}

    /// Returns the number of a new track, below those before it.
    int add_track(std::string name);
    void add(TraceEvent event) { events_.push_back(std::move(event)); }

    /// The file.
    std::string json() const;

  private:
    std::string title_;
    std::vector<std::string> tracks_;
    std::vector<TraceEvent> events_;
};

/// The entry of a launch.
struct TracedLaunch {
    std::string op, kernel, scope, stage;
    double begin = 0, seconds = 0;
    Cost cost;
};

/// A launch as an event: operation and kernel, scope, FLOPs and bytes by the op table, GFLOP/s.
TraceEvent launch_event(int track, const TracedLaunch& launch);

/// The file of a step's timeline, one run a micro-batch; trace_events.h says what opens it. Tracks: the step
/// with its micro-batches, the launches, and one for each thread. `title`: of the whole; `step`: of the step.
/// Work of a kernel outside of the pool's loops is on no thread's track.
std::string step_trace(const Timeline& timeline, const std::string& title, const std::string& step);

}  // namespace mantissa
