#include "mantissa/report/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "mantissa/base/error.h"
#include "mantissa/report/median.h"
#include "mantissa/report/quantities.h"
#include "mantissa/report/trace_events.h"
#include "mantissa/report/unit_peak.h"

namespace mantissa::inline v0 {

namespace {

// A launch on all threads and its end take some microseconds; what is shorter than ten of them measures
// little else.
constexpr double latency_seconds = 20e-6;

struct RooflineLine {
    std::string op, pass, kernel;
    int launches = 0;
    double seconds = 0, roof_seconds = 0;
    Cost cost;
    std::map<Bound, double> bounds;  ///< seconds of launches by their bound

    Bound bound() const {
        return std::max_element(bounds.begin(), bounds.end(),
                                [](const auto& a, const auto& b) { return a.second < b.second; })
            ->first;
    }
};

std::vector<RooflineLine> roofline_lines(const Roofline& roofline) {
    std::map<std::tuple<std::string, std::string, std::string>, RooflineLine> by_key;
    for (const RooflineEntry& entry : roofline.entries) {
        RooflineLine& line = by_key[{entry.op, entry.pass, entry.kernel}];
        line.op = entry.op;
        line.pass = entry.pass;
        line.kernel = entry.kernel;
        ++line.launches;
        line.seconds += entry.seconds;
        line.roof_seconds += entry.roof_seconds;
        line.cost.flops += entry.cost.flops;
        line.cost.bytes += entry.cost.bytes;
        line.bounds[entry.bound] += entry.seconds;
    }
    std::vector<RooflineLine> lines;
    for (auto& [key, line] : by_key) lines.push_back(std::move(line));
    std::sort(lines.begin(), lines.end(),
              [](const RooflineLine& a, const RooflineLine& b) { return a.seconds > b.seconds; });
    return lines;
}

/// The share of the roof that was reached.
std::string of_roof(const RooflineLine& line) {
    if (line.roof_seconds <= line.seconds) return percent(line.roof_seconds / line.seconds);
    // A rate of arithmetic above the measured one is at the roof, within the precision of measuring it.
    return line.bound() == Bound::compute ? percent(1) : "cache";
}

}  // namespace

std::string_view name_of(Bound bound) {
    switch (bound) {
        case Bound::compute:
            return "compute";
        case Bound::memory:
            return "memory";
        case Bound::latency:
            return "latency";
    }
    throw InternalError("a bound outside of its enumeration");
}

double Roofline::explained() const {
    double total = 0;
    for (const RooflineEntry& entry : entries) total += entry.seconds;
    return wall_seconds > 0 ? total / wall_seconds : 0;
}

double Roofline::share_of(Bound bound) const {
    double total = 0;
    for (const RooflineEntry& entry : entries)
        if (entry.bound == bound) total += entry.seconds;
    return wall_seconds > 0 ? total / wall_seconds : 0;
}

ProfiledStep median_step(const std::vector<ProfiledStep>& steps) {
    check(!steps.empty(), "a median is of one step or more");
    ProfiledStep typical{.profile = Profile(steps.front().profile.size())};
    std::vector<double> seconds;
    double launches = 0;
    for (std::size_t i = 0; i < typical.profile.size(); ++i) {
        seconds.clear();
        for (const ProfiledStep& step : steps) seconds.push_back(step.profile[i]);
        launches += typical.profile[i] = median(seconds);
    }
    seconds.clear();
    for (const ProfiledStep& step : steps) seconds.push_back(step.wall_seconds);
    // Medians may add up to somewhat more than the median of sums.
    typical.wall_seconds = std::max(launches, median(seconds));
    return typical;
}

Roofline roofline(const Plan& plan, const Profile& profile, const Peaks& peaks, double wall_seconds) {
    check(profile.size() == plan.nodes().size(), "a profile has a time for each planned node");
    Roofline result{.title = {}, .peaks = peaks, .wall_seconds = wall_seconds, .entries = {}};
    double start = 0;
    for (std::size_t i = 0; i < profile.size(); ++i) {
        const PlannedNode& planned = plan.nodes()[i];
        const Node& node = plan.graph().node(planned.node);
        RooflineEntry entry{.op = std::string(node.op->name),
                            .name = node.origin.scope,
                            .pass = std::string(name_of(node.origin.stage)),
                            .kernel = planned.kernel,
                            .start = start,
                            .seconds = profile[i],
                            .cost = planned.cost};
        const double compute = static_cast<double>(planned.cost.flops) /
                               unit_peak(planned.arithmetic, peaks, plan.device().target());
        const double memory = static_cast<double>(planned.cost.bytes) / peaks.copy;
        entry.roof_seconds = std::max(compute, memory);
        if (entry.roof_seconds < latency_seconds / 10 && entry.seconds < latency_seconds)
            entry.bound = Bound::latency;
        else
            entry.bound = compute > memory ? Bound::compute : Bound::memory;
        start += profile[i];
        result.entries.push_back(std::move(entry));
    }
    return result;
}

std::string roofline_table(const Roofline& roofline) {
    constexpr const char* row = "{:<20} {:<9} {:>8} {:>10} {:>7} {:>9} {:>8} {:>10} {:<8} {:>7}  {}\n";
    std::string text =
        fmt::format("{}\npeaks: {:.1f} GFLOP/s FP32", roofline.title, roofline.peaks.f32_fma / 1e9);
    if (roofline.peaks.bf16_matrix > 0)
        text += fmt::format(", {:.1f} GFLOP/s BF16", roofline.peaks.bf16_matrix / 1e9);
    text += fmt::format(", {:.1f} GB/s copy\n\n", roofline.peaks.copy / 1e9);
    text += fmt::format(row, "operation", "pass", "launches", "ms", "time", "GFLOP/s", "GB/s", "FLOP/byte",
                        "bound", "of roof", "kernel");
    double seconds = 0, roof_seconds = 0;
    bool any_cached = false;
    Cost total;
    const auto line_of = [&](const RooflineLine& line) {
        const auto flops = static_cast<double>(line.cost.flops), bytes = static_cast<double>(line.cost.bytes);
        return fmt::format(row, line.op, line.pass, line.launches, fmt::format("{:.2f}", line.seconds * 1e3),
                           percent(line.seconds / roofline.wall_seconds),
                           fmt::format("{:.1f}", flops / line.seconds / 1e9),
                           fmt::format("{:.1f}", bytes / line.seconds / 1e9),
                           fmt::format("{:.2f}", bytes > 0 ? flops / bytes : 0), name_of(line.bound()),
                           of_roof(line), line.kernel);
    };
    for (const RooflineLine& line : roofline_lines(roofline)) {
        text += line_of(line);
        seconds += line.seconds;
        roof_seconds += std::min(line.seconds, line.roof_seconds);
        any_cached |= of_roof(line) == "cache";
        total.flops += line.cost.flops;
        total.bytes += line.cost.bytes;
    }
    text += fmt::format(
        "\n{:.2f} ms for the step, {:.1f} % of it in the {} launches above: {:.3f} GFLOP, {:.2f} GB; "
        "{:.2f} ms if each reached its roof\n",
        roofline.wall_seconds * 1e3, 100 * roofline.explained(), roofline.entries.size(),
        static_cast<double>(total.flops) / 1e9, static_cast<double>(total.bytes) / 1e9, roof_seconds * 1e3);
    if (any_cached) text += "cache: faster than memory is copied, since what was read lay in a cache\n";
    return text;
}

std::string roofline_trace(const Roofline& roofline) {
    TraceEvents trace(roofline.title);
    const int track = trace.add_track("launches");
    for (const RooflineEntry& entry : roofline.entries) {
        TracedLaunch launch;
        launch.op = entry.op;
        launch.kernel = entry.kernel;
        launch.scope = entry.name;
        launch.stage = entry.pass;
        launch.begin = entry.start;
        launch.seconds = entry.seconds;
        launch.cost = entry.cost;
        TraceEvent event = launch_event(track, launch);
        event.arguments.push_back({"bound", std::string(name_of(entry.bound))});
        trace.add(std::move(event));
    }
    return trace.json();
}

}  // namespace mantissa
