#include "mantissa/report/html_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/report/html.h"

namespace mantissa::inline v0::html {

namespace {

constexpr double width = 1000, height = 300, left = 80, right = 16, top = 24, bottom = 44;

/// 1, 2 or 5 times a power of ten, so that about `parts` of them make up `range`.
double round_step(double range, double parts) {
    const double raw = range / parts, power = std::pow(10, std::floor(std::log10(raw)));
    for (const double step : {1.0, 2.0, 5.0})
        if (raw <= step * power) return step * power;
    return 10 * power;
}

/// What of steps and values lies where.
struct Plane {
    double last_step = 1, low = 0, high = 1;

    double x(double step) const { return left + step / last_step * (width - left - right); }
    double y(double value) const {
        return height - bottom - (value - low) / (high - low) * (height - top - bottom);
    }
};

Plane plane_of(const std::vector<Curve>& curves) {
    double low = std::numeric_limits<double>::infinity(), high = -low;
    std::size_t steps = 0;
    for (const Curve& curve : curves) {
        steps = std::max(steps, curve.values.size());
        for (const double value : curve.values) {
            if (!std::isfinite(value)) continue;
            low = std::min(low, value);
            high = std::max(high, value);
        }
    }
    if (!(low <= high)) return {};
    if (low == high) {
        const double some = low == 0 ? 1e-6 : std::abs(low) * 1e-3;
        low -= some;
        high += some;
    }
    const double margin = 0.05 * (high - low);
    return {.last_step = steps > 1 ? static_cast<double>(steps - 1) : 1,
            .low = low - margin,
            .high = high + margin};
}

std::string axes(const Plane& plane, const std::string& vertical) {
    std::string svg;
    const double step = round_step(plane.high - plane.low, 5);
    for (double at = std::ceil(plane.low / step) * step; at <= plane.high; at += step) {
        const double value = std::abs(at) < step / 2 ? 0 : at;  // not -1e-17
        svg += fmt::format(
            "<path class='axis' d='M{:.1f} {:.1f}H{:.1f}'/><text x='{:.1f}' y='{:.1f}' "
            "text-anchor='end'>{:.6g}</text>\n",
            left, plane.y(value), width - right, left - 8, plane.y(value) + 4, value);
    }
    const double steps = std::max(1.0, round_step(plane.last_step, 10));
    for (double at = 0; at <= plane.last_step; at += steps)
        svg += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>{:.0f}</text>\n", plane.x(at),
                           height - bottom + 18, at);
    return svg + fmt::format(
                     "<text class='faint' x='{:.1f}' y='{:.1f}' text-anchor='middle'>step</text>"
                     "<text class='faint' x='4' y='14'>{}</text>\n",
                     (left + width - right) / 2, height - 6, escaped(vertical));
}

std::string curve_path(const Plane& plane, const Curve& curve, double stroke) {
    std::string path, points;
    bool pen_down = false;
    for (std::size_t i = 0; i < curve.values.size(); ++i) {
        const double value = curve.values[i];
        if (!std::isfinite(value)) {
            pen_down = false;
            continue;
        }
        const double x = plane.x(static_cast<double>(i)), y = plane.y(value);
        path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", x, y);
        pen_down = true;
        if (curve.values.size() <= 40)
            points += fmt::format(
                "<circle class='fill {}' cx='{:.1f}' cy='{:.1f}' r='{:.1f}'><title>{}, step {}: {:.6g}"
                "</title></circle>\n",
                color_class(curve.color), x, y, stroke / 2 + 1.5, escaped(curve.name), i, value);
    }
    return fmt::format("<path class='curve {}' stroke-width='{:.1f}' d='{}'/>\n", color_class(curve.color),
                       stroke, path) +
           points;
}

/// Each curve is wider by `wider` than the one after it.
std::string drawing(const std::vector<Curve>& curves, const std::string& vertical, double wider) {
    const Plane plane = plane_of(curves);
    std::string svg = fmt::format("<svg viewBox='0 0 {} {}' role='img' aria-label='{} over steps'>\n", width,
                                  height, escaped(vertical)) +
                      axes(plane, vertical);
    std::vector<Named> names;
    for (std::size_t i = 0; i < curves.size(); ++i) {
        const auto after = static_cast<double>(curves.size() - 1 - i);
        svg += curve_path(plane, curves[i], 1.5 + wider * std::min(after, 6.0));
        names.push_back({curves[i].name, curves[i].color});
    }
    return key(names) + svg + "</svg>\n";
}

}  // namespace

std::string color_class(std::size_t color) { return fmt::format("c{}", color % 8); }

std::string bars(const std::vector<Bar>& bars, double whole) {
    if (whole <= 0)
        for (const Bar& bar : bars) {
            double length = 0;
            for (const BarPart& part : bar.parts) length += part.value;
            whole = std::max(whole, length);
        }
    std::string text = "<div class='bars'>\n";
    for (const Bar& bar : bars) {
        text += fmt::format("<span>{}</span><div>", escaped(bar.label));
        for (const BarPart& part : bar.parts)
            text +=
                fmt::format("<i class='{}' style='width:{:.3f}%' title='{}'></i>", color_class(part.color),
                            whole > 0 ? 100 * part.value / whole : 0, escaped(part.title));
        text += fmt::format("</div><b>{}</b>\n", escaped(bar.text));
    }
    return text + "</div>\n";
}

std::string key(const std::vector<Named>& entries) {
    std::string text = "<p class='key'>";
    for (const Named& entry : entries)
        text +=
            fmt::format("<span><i class='{}'></i>{}</span>", color_class(entry.color), escaped(entry.name));
    return text + "</p>\n";
}

std::string curves(const std::vector<Curve>& curves, const std::string& vertical) {
    return drawing(curves, vertical, 0);
}

std::string nested_curves(const std::vector<Curve>& curves, const std::string& vertical) {
    return drawing(curves, vertical, 1.5);
}

}  // namespace mantissa::html
