#include "mantissa/runtime/timeline.h"

namespace mantissa::inline v0 {

namespace {

/// Threads are recorded as long as this exists.
class ThreadsRecorded {
  public:
    explicit ThreadsRecorded(Device& device) : device_(device) { device_.record_threads(true); }
    ~ThreadsRecorded() { device_.record_threads(false); }
    ThreadsRecorded(const ThreadsRecorded&) = delete;
    ThreadsRecorded& operator=(const ThreadsRecorded&) = delete;

  private:
    Device& device_;
};

}  // namespace

void TimelineRecorder::run(Execution& execution) {
    const ThreadsRecorded threads(device_);
    const std::vector<std::unique_ptr<Event>> events = execution.run_with_events();
    TimedRun run;
    run.plan = &execution.plan();
    run.begin = device_.seconds_between(*begin_, *events.front());
    for (std::size_t i = 0; i + 1 < events.size(); ++i)
        run.launches.push_back(device_.seconds_between(*events[i], *events[i + 1]));
    timeline_.runs.push_back(std::move(run));
}

Timeline TimelineRecorder::finish() {
    const std::unique_ptr<Event> end = device_.record();
    device_.wait(*end);
    timeline_.seconds = device_.seconds_between(*begin_, *end);
    timeline_.threads = device_.thread_work(*begin_);
    return std::move(timeline_);
}

}  // namespace mantissa
