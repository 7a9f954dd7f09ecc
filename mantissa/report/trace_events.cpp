#include "mantissa/report/trace_events.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {

/// Threads are recorded while this exists.
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

namespace {

/// Every launch of every run, in the order of time.
std::vector<TracedLaunch> launches_of(const Timeline& timeline) {
    std::vector<TracedLaunch> launches;
    for (const TimedRun& run : timeline.runs) {
        check(run.launches.size() == run.plan->nodes().size(), "a run has a time for each planned node");
        double begin = run.begin;
        for (std::size_t i = 0; i < run.launches.size(); ++i) {
            const PlannedNode& planned = run.plan->nodes()[i];
            const Node& node = run.plan->graph().node(planned.node);
            TracedLaunch launch;
            launch.op = node.op->name;
            launch.kernel = planned.kernel;
            launch.scope = node.origin.scope;
            launch.stage = name_of(node.origin.stage);
            launch.begin = begin;
            launch.seconds = run.launches[i];
            launch.cost = planned.cost;
            launches.push_back(std::move(launch));
            begin += run.launches[i];
        }
    }
    return launches;
}

void add_step(TraceEvents& trace, const Timeline& timeline, const std::string& step) {
    const int track = trace.add_track("step");
    trace.add({.track = track, .name = step, .category = "step", .begin = 0, .seconds = timeline.seconds});
    if (timeline.runs.size() == 1) return;
    for (std::size_t i = 0; i < timeline.runs.size(); ++i) {
        const TimedRun& run = timeline.runs[i];
        double seconds = 0;
        for (const double each : run.launches) seconds += each;
        trace.add({.track = track,
                   .name = fmt::format("micro-batch {}", i),
                   .category = "step",
                   .begin = run.begin,
                   .seconds = seconds});
    }
}

/// A thread works for the last launch that began before its work: launches are consecutive, and each begins
/// before its loops.
void add_threads(TraceEvents& trace, const Timeline& timeline, const std::vector<TracedLaunch>& launches) {
    int thread = -1, track = 0;
    for (const ThreadWork& work : timeline.threads) {  // thread by thread
        for (; thread < work.thread; ++thread) track = trace.add_track(fmt::format("thread {}", thread + 1));
        const auto after =
            std::upper_bound(launches.begin(), launches.end(), work.begin,
                             [](double time, const TracedLaunch& launch) { return time < launch.begin; });
        check(after != launches.begin(), "a thread works for a launch");
        const TracedLaunch& launch = *(after - 1);
        trace.add({.track = track,
                   .name = launch.op,
                   .category = launch.stage,
                   .begin = work.begin,
                   .seconds = work.end - work.begin,
                   .arguments = {{"launch", static_cast<std::int64_t>(after - 1 - launches.begin())},
                                 {"kernel", launch.kernel},
                                 {"scope", launch.scope},
                                 {"blocks", work.blocks}}});
    }
}

}  // namespace

std::string step_trace(const Timeline& timeline, const std::string& title, const std::string& step) {
    TraceEvents trace(title);
    add_step(trace, timeline, step);
    const std::vector<TracedLaunch> launches = launches_of(timeline);
    const int track = trace.add_track("launches");
    for (const TracedLaunch& launch : launches) trace.add(launch_event(track, launch));
    add_threads(trace, timeline, launches);
    return trace.json();
}

}  // namespace mantissa
