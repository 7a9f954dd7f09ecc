#include "mantissa/report/trace_events.h"

#include <nlohmann/json.hpp>

namespace mantissa::inline v0 {

namespace {

using Json = nlohmann::ordered_json;

/// All tracks belong to one process.
constexpr int process = 1;

Json named(const char* what, int track, const std::string& name) {
    return {{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", track}, {"args", {{"name", name}}}};
}

Json json_of(const TraceEvent::Arguments& arguments) {
    Json json = Json::object();
    for (const auto& [name, value] : arguments)
        std::visit([&, &key = name](const auto& each) { json[key] = each; }, value);
    return json;
}

}  // namespace

int TraceEvents::add_track(std::string name) {
    tracks_.push_back(std::move(name));
    return static_cast<int>(tracks_.size());
}

std::string TraceEvents::json() const {
    Json events = Json::array();
    events.push_back(named("process_name", 0, title_));
    for (int track = 1; const std::string& name : tracks_) {
        events.push_back(named("thread_name", track, name));
        Json order = named("thread_sort_index", track, "");
        order["args"] = {{"sort_index", track}};
        events.push_back(std::move(order));
        ++track;
    }
    for (const TraceEvent& event : events_)
        events.push_back({{"name", event.name},
                          {"cat", event.category},
                          {"ph", "X"},
                          {"ts", event.begin * 1e6},
                          {"dur", event.seconds * 1e6},
                          {"pid", process},
                          {"tid", event.track},
                          {"args", json_of(event.arguments)}});
    const Json json = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
    return json.dump(1) + "\n";
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
