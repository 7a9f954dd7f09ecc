#include "mantissa/report/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <tuple>

#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/report/explain.h"
#include "mantissa/report/html.h"
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
    static constexpr std::array<std::string_view, 3> names = {"compute", "memory", "latency"};
    return names.at(static_cast<std::size_t>(bound));
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

namespace {

constexpr double width = 960, height = 420, left = 70, bottom = 50;

/// The colour of a pass, as in the page's legend.
std::size_t color_of(const std::string& pass) { return pass == "forward" ? 0 : pass == "backward" ? 1 : 2; }

/// Logarithmic axes: FLOP per byte from left to right, FLOP a second upwards.
class Plane {
  public:
    Plane(double max_flops, double min_flops) : top_(std::log10(max_flops)), low_(std::log10(min_flops)) {}
    double x(double intensity) const {
        const double at = (std::log10(intensity) - min_intensity) / (max_intensity - min_intensity);
        return left + std::clamp(at, 0.0, 1.0) * (width - left - 20);
    }
    double y(double flops) const {
        const double at = (std::log10(flops) - low_) / (top_ - low_);
        return height - bottom - std::clamp(at, 0.0, 1.0) * (height - bottom - 20);
    }
    bool shows(double flops) const { return std::log10(flops) >= low_ && std::log10(flops) <= top_; }
    static constexpr double min_intensity = -2, max_intensity = 4;

  private:
    double top_, low_;
};

/// A roof with its label, `below` units under it.
std::string roof_line(const Plane& plane, double peak, double copy, const char* label, double below) {
    const double ridge = peak / copy, from = std::pow(10, Plane::min_intensity),
                 to = std::pow(10, Plane::max_intensity);
    return fmt::format(
        "<polyline class='roof' points='{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}'/>"
        "<text x='{:.1f}' y='{:.1f}' text-anchor='end'>{}: {:.0f} GFLOP/s</text>\n",
        plane.x(from), plane.y(from * copy), plane.x(ridge), plane.y(peak), plane.x(to), plane.y(peak),
        plane.x(to), plane.y(peak) + below, label, peak / 1e9);
}

std::string axes(const Plane& plane) {
    std::string svg;
    for (int power = -2; power <= 4; ++power)
        svg += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>1e{}</text>",
                           plane.x(std::pow(10, power)), height - bottom + 20, power);
    for (int power = 0; power <= 16; ++power)
        if (plane.shows(std::pow(10, power)))
            svg += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='end'>1e{}</text>", left - 8,
                               plane.y(std::pow(10, power)), power);
    return svg + fmt::format(
                     "<text class='faint' x='{:.1f}' y='{:.1f}' text-anchor='middle'>FLOP per byte</text>"
                     "<text class='faint' x='4' y='12'>FLOP/s</text>\n",
                     width / 2, height - 10);
}

/// A disc for each operation, pass and kernel; its area is its share of the time.
std::string roof_svg(const Roofline& roofline) {
    const double most = std::max(roofline.peaks.fastest(), roofline.peaks.f32_fma) * 2;
    const Plane plane(most, most / 1e6);
    std::string svg = fmt::format("<svg viewBox='0 0 {} {}'>\n", width, height) + axes(plane);
    svg += roof_line(plane, roofline.peaks.f32_fma, roofline.peaks.copy, "FP32", 14);
    if (roofline.peaks.bf16_matrix > 0)
        svg += roof_line(plane, roofline.peaks.bf16_matrix, roofline.peaks.copy, "BF16", -5);
    for (const RooflineLine& kind : lines_of(roofline.entries)) {
        if (kind.cost.flops == 0 || kind.cost.bytes == 0 || !(kind.seconds > 0)) continue;
        const double intensity = static_cast<double>(kind.cost.flops) / static_cast<double>(kind.cost.bytes);
        const double rate = static_cast<double>(kind.cost.flops) / kind.seconds;
        svg += fmt::format(
            "<circle cx='{:.1f}' cy='{:.1f}' r='{:.1f}' class='fill {}' fill-opacity='0.5'><title>{} {}: "
            "{:.2f} ms, {:.1f} GFLOP/s, {:.2f} FLOP/byte, {}</title></circle>\n",
            plane.x(intensity), plane.y(rate), 3 + 40 * std::sqrt(kind.seconds / roofline.wall_seconds),
            html::color_class(color_of(kind.pass)), html::escaped(kind.op), kind.pass, kind.seconds * 1e3,
            rate / 1e9, intensity, html::escaped(kind.kernel));
    }
    return svg + "</svg>\n";
}

/// Rows of the flame: pass, scope's first two parts, operation; neighbours of one name are one box.
std::string flame_svg(const Roofline& roofline) {
    constexpr double row = 22;
    const double scale = (width - 20) / roofline.wall_seconds;
    std::string svg = fmt::format("<svg viewBox='0 0 {} {}'>\n", width, 3 * row + 10);
    const auto level_name = [](const RooflineEntry& entry, int level) {
        if (level == 0) return entry.pass;
        if (level == 2) return entry.op;
        std::size_t dot = entry.name.find('.');
        if (dot != std::string::npos) dot = entry.name.find('.', dot + 1);
        return entry.name.empty() ? std::string("-") : entry.name.substr(0, dot);
    };
    for (int level = 0; level < 3; ++level)
        for (std::size_t i = 0; i < roofline.entries.size();) {
            const RooflineEntry& first = roofline.entries[i];
            const std::string name = level_name(first, level);
            double seconds = 0;
            for (; i < roofline.entries.size() && level_name(roofline.entries[i], level) == name &&
                   roofline.entries[i].pass == first.pass;
                 ++i)
                seconds += roofline.entries[i].seconds;
            if (seconds * scale < 0.3) continue;
            const double x = 10 + first.start * scale, y = 5 + level * row;
            svg += fmt::format(
                "<rect x='{:.2f}' y='{:.1f}' width='{:.2f}' height='{:.1f}' class='fill {}' "
                "fill-opacity='{}'><title>{}: {:.3f} ms</title></rect>\n",
                x, y, seconds * scale, row - 2, html::color_class(color_of(first.pass)),
                level == 1 ? 0.35 : 0.6, html::escaped(name), seconds * 1e3);
            if (seconds * scale > 7.0 * static_cast<double>(name.size()))
                svg += fmt::format("<text x='{:.2f}' y='{:.1f}'>{}</text>\n", x + 3, y + 15,
                                   html::escaped(name));
        }
    return svg + "</svg>\n";
}

}  // namespace

std::string roofline_section(const Roofline& roofline) {
    return html::key({{"forward", color_of("forward")},
                      {"backward", color_of("backward")},
                      {"update", color_of("update")}}) +
           "<p>Discs: kernels by arithmetic intensity and speed, area by time. Point at one to read "
           "it.</p>\n" +
           roof_svg(roofline) + "<h3>The step, from left to right</h3>\n" + flame_svg(roofline) +
           "<h3>Every operation, pass and kernel</h3>\n<pre>" + html::escaped(roofline_table(roofline)) +
           "</pre>\n";
}

}  // namespace mantissa
