// Checks that Perfetto and chrome://tracing can read each event of a trace.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace mantissa {

/// The fault of the trace; empty if there is none. Every event with a length has a time, a length of 0 or
/// more, and a named track.
inline std::string fault_of_trace(const nlohmann::json& trace) {
    if (!trace.contains("traceEvents") || !trace["traceEvents"].is_array()) return "it has no traceEvents";
    std::map<std::pair<int, int>, std::string> names;
    const auto track_of = [](const nlohmann::json& event) {
        return std::pair{event["pid"].get<int>(), event["tid"].get<int>()};
    };
    for (const nlohmann::json& event : trace["traceEvents"])
        if (event["ph"] == "M" && event["name"] == "thread_name")
            names[track_of(event)] = event["args"]["name"].get<std::string>();
    for (const nlohmann::json& event : trace["traceEvents"]) {
        for (const char* member : {"name", "ph", "pid", "tid"})
            if (!event.contains(member)) return std::string("an event without ") + member;
        if (event["ph"] == "M") continue;
        if (event["ph"] != "X") return "an event of another kind: " + event["ph"].dump();
        for (const char* time : {"ts", "dur"})
            if (!event.contains(time) || !event[time].is_number() || event[time].get<double>() < 0)
                return std::string("an event without ") + time + ": " + event.dump();
        if (!event["cat"].is_string() || event["name"].get<std::string>().empty())
            return "an event without words: " + event.dump();
        if (!names.contains(track_of(event))) return "a track without a name: " + event["tid"].dump();
    }
    return "";
}

/// Number of the track of that name.
inline int track_named(const nlohmann::json& trace, const std::string& name) {
    for (const nlohmann::json& event : trace["traceEvents"])
        if (event["name"] == "thread_name" && event["args"]["name"] == name) return event["tid"].get<int>();
    return -1;
}

}  // namespace mantissa
