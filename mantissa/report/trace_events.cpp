#include "mantissa/report/trace_events.h"

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

namespace {

/// All tracks belong to one process.
constexpr int process = 1;

Datum named(const char* what, int track, Field argument) {
    return Fields{
        {"name", what}, {"ph", "M"}, {"pid", process}, {"tid", track}, {"args", Fields{std::move(argument)}}};
}

}  // namespace

int TraceEvents::add_track(std::string name) {
    tracks_.push_back(std::move(name));
    return static_cast<int>(tracks_.size());
}

std::string TraceEvents::json() const {
    Datum::List events{named("process_name", 0, {"name", title_})};
    for (int track = 1; const std::string& name : tracks_) {
        events.push_back(named("thread_name", track, {"name", name}));
        events.push_back(named("thread_sort_index", track, {"sort_index", track}));
        ++track;
    }
    for (const TraceEvent& event : events_)
        events.emplace_back(Fields{{"name", event.name},
                                   {"cat", event.category},
                                   {"ph", "X"},
                                   {"ts", event.begin * 1e6},
                                   {"dur", event.seconds * 1e6},
                                   {"pid", process},
                                   {"tid", event.track},
                                   {"args", event.arguments}});
    return json_line(Fields{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}) + "\n";
}

TraceEvent launch_event(int track, const TracedLaunch& launch) {
    const auto flops = static_cast<double>(launch.cost.flops);
    return {.track = track,
            .name = launch.op + ": " + launch.kernel,
            .category = launch.stage,
            .begin = launch.begin,
            .seconds = launch.seconds,
            .arguments = {{"scope", launch.scope},
                          {"flops", launch.cost.flops},
                          {"bytes", launch.cost.bytes},
                          {"GFLOP/s", launch.seconds > 0 ? flops / launch.seconds / 1e9 : 0.0}}};
}

}  // namespace mantissa
