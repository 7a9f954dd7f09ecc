#include "mantissa/report/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/report/explain.h"
#include "mantissa/report/quantities.h"
#include "mantissa/report/report.h"
#include "mantissa/report/step_estimate.h"
#include "mantissa/report/trace_events.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

namespace {

// A launch on all threads and its end take some microseconds; a kernel shorter than ten of them measures
// little else.
constexpr double latency_seconds = 20e-6;

std::string in_milliseconds(double seconds) { return with_decimals(1e3 * seconds, 2); }

/// In 10^9 a second.
std::string giga_rate(std::int64_t count, double seconds) {
    return with_decimals(static_cast<double>(count) / seconds / 1e9, 1);
}

/// The share of the roof that was reached.
std::string of_roof(const RooflineLine& line) {
    if (line.roof_seconds <= line.seconds) return percent(line.roof_seconds / line.seconds);
    // A rate of arithmetic above the measured peak is at the roof, within the precision of its measurement.
    return line.bound() == Bound::compute ? percent(1) : "cache";
}

}  // namespace

Roofline measure_roofline(Trainer& trainer, const Batch& batch, const Peaks& peaks,
                          const std::function<void(const std::string&)>& progress) {
    constexpr int warm_up = 2, least = 3, most = 7;
    constexpr double enough_seconds = 10;
    std::vector<ProfiledStep> steps;
    const Stopwatch watch;
    for (int step = -warm_up; step < least || (step < most && watch.seconds() < enough_seconds); ++step) {
        if (progress) progress(fmt::format("step {} of at most {}", step + warm_up + 1, warm_up + most));
        Profile profile;
        const StepResult result = trainer.step(batch, 1e-4, &profile);
        if (step >= 0) steps.push_back({std::move(profile), result.seconds});
    }
    const ProfiledStep typical = median_step(steps);
    Roofline measured = roofline(trainer.plan().step(), typical.profile, peaks, typical.wall_seconds);
    const Explanation explanation = explain(trainer.plan());
    measured.title = fmt::format("{}\n{}\nmedians of {}", explanation.title(), explanation.passes_text(),
                                 count_text(steps.size(), "step"));
    return measured;
}

std::vector<RooflineLine> lines_of(const std::vector<RooflineEntry>& entries) {
    std::map<std::tuple<std::string, std::string, std::string>, RooflineLine> by_key;
    for (const RooflineEntry& entry : entries) {
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

Bound RooflineLine::bound() const {
    return std::ranges::max_element(bounds, {}, [](const auto& each) { return each.second; })->first;
}

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
    // The sum of medians may exceed the median of sums.
    typical.wall_seconds = std::max(launches, median(seconds));
    return typical;
}

namespace {

/// Data of each launch without any peak.
std::vector<RooflineEntry> entries_of(const Plan& plan, const Profile& profile) {
    check(profile.size() == plan.nodes().size(), "a profile has a time for each planned node");
    std::vector<RooflineEntry> entries;
    double start = 0;
    for (std::size_t i = 0; i < profile.size(); start += profile[i++]) {
        const PlannedNode& planned = plan.nodes()[i];
        const Node& node = plan.graph().node(planned.node);
        entries.push_back({.op = std::string(node.op->name),
                           .name = node.origin.scope,
                           .line = node.origin.line.text(),
                           .pass = std::string(name_of(node.origin.stage)),
                           .kernel = planned.kernel,
                           .start = start,
                           .seconds = profile[i],
                           .cost = planned.cost});
    }
    return entries;
}

}  // namespace

Roofline roofline(const Plan& plan, const Profile& profile, const Peaks& peaks, double wall_seconds) {
    Roofline result{
        .title = {}, .peaks = peaks, .wall_seconds = wall_seconds, .entries = entries_of(plan, profile)};
    for (std::size_t i = 0; i < profile.size(); ++i) {
        RooflineEntry& entry = result.entries[i];
        const double compute = static_cast<double>(entry.cost.flops) /
                               unit_peak(plan.nodes()[i].arithmetic, peaks, plan.device().target());
        const double memory = static_cast<double>(entry.cost.bytes) / peaks.copy;
        entry.roof_seconds = std::max(compute, memory);
        if (entry.roof_seconds < latency_seconds / 10 && entry.seconds < latency_seconds)
            entry.bound = Bound::latency;
        else
            entry.bound = compute > memory ? Bound::compute : Bound::memory;
    }
    return result;
}

std::string profile_table(const Plan& plan, const Profile& profile) {
    const std::vector<RooflineEntry> entries = entries_of(plan, profile);
    const double total = std::accumulate(profile.begin(), profile.end(), 0.0);
    Grid grid{{"operation", "stage", "launches", "ms", "share", "GFLOP/s", "GB/s", "kernel"}};
    for (const RooflineLine& line : lines_of(entries))
        grid.rows.push_back({line.op, line.pass, std::to_string(line.launches), in_milliseconds(line.seconds),
                             percent(line.seconds / total), giga_rate(line.cost.flops, line.seconds),
                             giga_rate(line.cost.bytes, line.seconds), line.kernel});
    grid.rows.push_back({"all", "", std::to_string(profile.size()), in_milliseconds(total)});
    return grid.text();
}

std::string roofline_table(const Roofline& roofline) {
    Grid grid{{"operation", "pass", "launches", "ms", "time", "GFLOP/s", "GB/s", "FLOP/byte", "bound",
               "of roof", "kernel"}};
    double roof_seconds = 0;
    bool any_cached = false;
    Cost total;
    for (const RooflineLine& line : lines_of(roofline.entries)) {
        const auto flops = static_cast<double>(line.cost.flops), bytes = static_cast<double>(line.cost.bytes);
        grid.rows.push_back(
            {line.op, line.pass, std::to_string(line.launches), in_milliseconds(line.seconds),
             percent(line.seconds / roofline.wall_seconds), giga_rate(line.cost.flops, line.seconds),
             giga_rate(line.cost.bytes, line.seconds), with_decimals(bytes > 0 ? flops / bytes : 0, 2),
             std::string(name_of(line.bound())), of_roof(line), line.kernel});
        roof_seconds += std::min(line.seconds, line.roof_seconds);
        any_cached |= of_roof(line) == "cache";
        total.flops += line.cost.flops;
        total.bytes += line.cost.bytes;
    }
    return fmt::format(
        "{}\npeaks: {:.1f} GFLOP/s FP32{}, {:.1f} GB/s copy\n\n{}\n{:.2f} ms for the step, {:.1f} % of it in "
        "the "
        "{} launches above: {:.3f} GFLOP, {:.2f} GB; {:.2f} ms if each reached its roof\n{}",
        roofline.title, roofline.peaks.f32_fma / 1e9,
        roofline.peaks.bf16_matrix > 0
            ? fmt::format(", {:.1f} GFLOP/s BF16", roofline.peaks.bf16_matrix / 1e9)
            : "",
        roofline.peaks.copy / 1e9, grid.text(), roofline.wall_seconds * 1e3, 100 * roofline.explained(),
        roofline.entries.size(), gigaflops(total.flops), static_cast<double>(total.bytes) / 1e9,
        roof_seconds * 1e3,
        any_cached ? "cache: faster than memory is copied, since what was read lay in a cache\n" : "");
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
