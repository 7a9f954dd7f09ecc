// A timeline of a step's launches and of each thread's work, in Chrome's Trace Event Format, for Perfetto
// (ui.perfetto.dev) and chrome://tracing: named tracks with events that have a beginning and a length.
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

/// A run of a plan, which must outlive this.
struct TimedRun {
    const Plan* plan = nullptr;
    double begin = 0;  ///< of the first launch, seconds since the recording began
    Profile launches;  ///< seconds of each, consecutive, in the order of Plan::nodes()
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

/// An event on one track. Times are in seconds since the trace began.
struct TraceEvent {
    int track = 0;
    std::string name, category;
    double begin = 0, seconds = 0;
    Fields arguments = {};  ///< shown under the pointer
};

class TraceEvents {
  public:
    /// `title`: of all tracks.
    explicit TraceEvents(std::string title) : title_(std::move(title)) {}

    /// Adds a track below the others and returns its number.
    int add_track(std::string name);
    void add(TraceEvent event) { events_.push_back(std::move(event)); }

    /// The trace file's content.
    std::string json() const;

  private:
    std::string title_;
    std::vector<std::string> tracks_;
    std::vector<TraceEvent> events_;
};

/// The data of a traced launch.
struct TracedLaunch {
    std::string op, kernel, scope, stage;
    double begin = 0, seconds = 0;
    Cost cost;
};

/// A launch as an event: operation and kernel, scope, FLOPs and bytes by the op table, GFLOP/s.
TraceEvent launch_event(int track, const TracedLaunch& launch);

/// The file of a step's timeline, one run per micro-batch; trace_events.h names its viewers. Tracks: the step
/// with its micro-batches, the launches, and one per thread. `title`: of the whole; `step`: of the step. A
/// kernel's work outside of the pool's loops is on no thread's track.
std::string step_trace(const Timeline& timeline, const std::string& title, const std::string& step);

}  // namespace mantissa
