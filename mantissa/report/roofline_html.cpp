// The roofline as HTML with two drawings in SVG.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/report/html.h"
#include "mantissa/report/roofline.h"

namespace mantissa::inline v0 {

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
