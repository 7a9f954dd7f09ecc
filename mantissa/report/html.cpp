#include "mantissa/report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/base/version.h"

namespace mantissa::inline v0::html {

namespace {

// Colours c0 ... c7 tell series apart; each has a lighter twin for dark pages. A bar of a chart is a grid of
// label, bar and text. Of two versions of a drawing, .broad and .narrow, the fitting one is shown.
constexpr std::string_view style = R"(
:root{color-scheme:light dark;--page:#fff;--ink:#1a202c;--faint:#5a6676;--line:#cbd5e0;--band:#edf2f7;
--c0:#2b6cb0;--c1:#c05621;--c2:#2f855a;--c3:#b83280;--c4:#6b46c1;--c5:#8a6d1a;--c6:#0e7490;--c7:#4a5568}
@media(prefers-color-scheme:dark){:root{--page:#14181f;--ink:#e5e9f0;--faint:#9aa5b5;--line:#3a4452;--band:#222935;
--c0:#63a4e8;--c1:#f0935a;--c2:#5cc48a;--c3:#ec7fbd;--c4:#a78bfa;--c5:#d9b84a;--c6:#4fc3dc;--c7:#a0aec0}}
body{font:15px/1.5 sans-serif;margin:24px auto;padding:0 16px;max-width:1080px;background:var(--page);color:var(--ink)}
h1{font-size:24px;margin:0 0 8px}h2{font-size:18px;margin:32px 0 8px}h3{font-size:15px;margin:16px 0 4px}
p{margin:6px 0}summary{cursor:pointer}.note{color:var(--faint);font-size:13px}code,pre{font:12px/1.4 monospace}pre{overflow-x:auto}
code{overflow-wrap:anywhere}.sample{white-space:pre-wrap}.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:13px;margin:10px 0}th,td{padding:3px 16px 3px 0;text-align:left;vertical-align:top}
th{color:var(--faint);font-weight:normal;border-bottom:1px solid var(--line);vertical-align:bottom}
td{border-bottom:1px solid var(--band)}
td.n,th.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.columns{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr));gap:8px 40px}
.bars{display:grid;grid-template-columns:max-content 1fr max-content;gap:6px 12px;align-items:center;font-size:13px}
.bars>div{display:flex;height:18px;background:var(--band)}.bars i{display:block;height:100%}
.bars b{font-weight:normal;text-align:right;font-variant-numeric:tabular-nums}
.key{font-size:13px;margin:6px 0}.key span{margin-right:18px;white-space:nowrap}
.key i{display:inline-block;width:12px;height:12px;margin-right:6px;vertical-align:-1px}
svg{width:100%;font:12px sans-serif;display:block}svg text{fill:var(--ink)}svg .faint{fill:var(--faint)}
svg .axis{stroke:var(--line);fill:none}svg .roof{stroke:var(--faint);fill:none}svg .curve{fill:none}
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}
.c4{--c:var(--c4)}.c5{--c:var(--c5)}.c6{--c:var(--c6)}.c7{--c:var(--c7)}
i[class]{background:var(--c)}svg [class^=c]{stroke:var(--c)}svg [class^=fill]{fill:var(--c);stroke:none}
svg rect[class^=fill]{stroke:var(--page);stroke-width:.4}
.narrow{display:none}@media(max-width:700px){.broad{display:none}.narrow{display:block}}
)";

std::string cells(const char* tag, const Row& row, const std::vector<bool>& right) {
    std::string line = "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
        line += std::string("<") + tag + (right[i] ? " class='n'>" : ">");
        line += escaped(row[i]) + "</" + tag + ">";
    }
    return line + "</tr>\n";
}

}  // namespace

std::string escaped(std::string_view text) {
    std::string safe;
    for (const char c : text) {
        switch (c) {
            case '<':
                safe += "&lt;";
                break;
            case '>':
                safe += "&gt;";
                break;
            case '&':
                safe += "&amp;";
                break;
            case '"':
                safe += "&quot;";
                break;
            case '\'':
                safe += "&#39;";
                break;
            default:
                safe += c;
        }
    }
    return safe;
}

std::string page(std::string_view title, const std::string& body, int reload_seconds) {
    const std::string heading = escaped(title);
    const std::string reload =
        reload_seconds > 0 ? "<meta http-equiv='refresh' content='" + std::to_string(reload_seconds) + "'>"
                           : "";
    return "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
           "<meta name='viewport' content='width=device-width, initial-scale=1'>" +
           reload + "<title>" + heading + "</title><style>" + std::string(style) +
           "</style></head><body>\n<h1>" + heading + "</h1>\n" + body + "</body></html>\n";
}

std::string table(const Grid& grid) {
    const std::vector<bool> right = grid.numbers();
    std::string text = "<div class='wide'><table>\n" + cells("th", grid.headings, right);
    for (const Row& row : grid.rows) text += cells("td", row, right);
    return text + "</table></div>\n";
}

std::string footer(const std::string& command) {
    return std::string("<p class='note'>mantissa ") + version() + ", commit " + escaped(commit()) +
           ": <code>" + escaped(command) + "</code></p>\n";
}

namespace {

constexpr double right = 16, top = 24, bottom = 44;

/// A step of 1, 2 or 5 times a power of ten, so that about `parts` steps make up `range`.
double round_step(double range, double parts) {
    const double raw = range / parts, power = std::pow(10, std::floor(std::log10(raw)));
    for (const double step : {1.0, 2.0, 5.0})
        if (raw <= step * power) return step * power;
    return 10 * power;
}

std::string label_of(double value) { return fmt::format("{:.6g}", value); }

/// The plane of steps and values.
struct Plane {
    DrawingOptions options = {};
    double first_step = 0, last_step = 1, low = 0, high = 1;
    std::vector<double> marks = {};  ///< values with a line across the drawing

    /// Room for the longest label, mostly equal for drawings of one width.
    double left() const {
        constexpr double of_a_letter = 7;
        double room = options.width < 600 ? 60 : 80;
        for (const double mark : marks)
            room = std::max(room, 12 + of_a_letter * static_cast<double>(label_of(mark).size()));
        return room;
    }
    double end() const { return options.width - right; }
    double bottom_line() const { return options.height - bottom; }
    double x(double step) const {
        return left() + (step - first_step) / (last_step - first_step) * (end() - left());
    }
    /// The height of a value between low and high.
    double height_of(double value) const { return options.logarithmic ? std::log10(value) : value; }
    double y(double value) const { return y_at(height_of(value)); }
    double y_at(double value) const {
        return bottom_line() - (value - low) / (high - low) * (bottom_line() - top);
    }
};

double step_of(const Curve& curve, std::size_t i) {
    return curve.steps.empty() ? static_cast<double>(i) : curve.steps[i];
}

/// Round values between low and high.
std::vector<double> marks_of(const Plane& plane) {
    std::vector<double> values;
    if (!plane.options.logarithmic) {
        const double step = round_step(plane.high - plane.low, 5);
        for (double at = std::ceil(plane.low / step) * step; at <= plane.high; at += step)
            values.push_back(std::abs(at) < step / 2 ? 0 : at);  // not -1e-17
        return values;
    }
    for (double power = std::floor(plane.low); power <= plane.high; ++power)
        for (const double part : {1.0, 2.0, 5.0})
            if (const double value = part * std::pow(10, power); (part == 1 || plane.high - plane.low < 2) &&
                                                                 std::log10(value) >= plane.low &&
                                                                 std::log10(value) <= plane.high)
                values.push_back(value);
    return values;
}

Plane plane_of(const std::vector<Curve>& curves, const DrawingOptions& options) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    double low = infinity, high = -infinity, first = infinity, last = -infinity;
    for (const Curve& curve : curves) {
        if (curve.values.empty()) continue;
        first = std::min(first, step_of(curve, 0));
        last = std::max(last, step_of(curve, curve.values.size() - 1));
        for (const double given : curve.values) {
            const double value = options.logarithmic ? std::log10(given) : given;
            if (!std::isfinite(value)) continue;
            low = std::min(low, value);
            high = std::max(high, value);
        }
    }
    if (!(low <= high)) return {.options = options};
    Plane plane{.options = options, .first_step = first, .last_step = last > first ? last : first + 1};
    // Values with equal labels are drawn as one value, with one line.
    const bool is_constant = label_of(low) == label_of(high);
    const double margin = !is_constant ? 0.05 * (high - low) : low == 0 ? 1 : 0.5 * std::abs(low);
    plane.low = low - margin;
    plane.high = high + margin;
    if (is_constant)
        plane.marks = {options.logarithmic ? std::pow(10, low) : low};
    else
        plane.marks = marks_of(plane);
    return plane;
}

std::string axes(const Plane& plane, const std::string& vertical) {
    std::string svg;
    for (const double value : plane.marks)
        svg += fmt::format(
            "<path class='axis' d='M{:.1f} {:.1f}H{:.1f}'/><text x='{:.1f}' y='{:.1f}' "
            "text-anchor='end'>{}</text>\n",
            plane.left(), plane.y(value), plane.end(), plane.left() - 8, plane.y(value) + 4, label_of(value));
    const double steps =
        std::max(1.0, round_step(plane.last_step - plane.first_step, plane.options.width / 100));
    for (double at = std::ceil(plane.first_step / steps) * steps; at <= plane.last_step; at += steps)
        svg += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>{:.0f}</text>\n", plane.x(at),
                           plane.bottom_line() + 18, at);
    return svg + fmt::format(
                     "<text class='faint' x='{:.1f}' y='{:.1f}' text-anchor='middle'>step</text>"
                     "<text class='faint' x='4' y='14'>{}</text>\n",
                     (plane.left() + plane.end()) / 2, plane.options.height - 6, escaped(vertical));
}

std::string curve_path(const Plane& plane, const Curve& curve, double stroke) {
    std::string path, points;
    bool pen_down = false;
    for (std::size_t i = 0; i < curve.values.size(); ++i) {
        const double value = curve.values[i];
        if (!std::isfinite(plane.height_of(value))) {
            pen_down = false;
            continue;
        }
        const double x = plane.x(step_of(curve, i)), y = plane.y(value);
        path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", x, y);
        pen_down = true;
        if (curve.values.size() <= 40)
            points += fmt::format(
                "<circle class='fill {}' cx='{:.1f}' cy='{:.1f}' r='{:.1f}'><title>{}, step {:.0f}: {:.6g}"
                "</title></circle>\n",
                color_class(curve.color), x, y, stroke / 2 + 1.5, escaped(curve.name), step_of(curve, i),
                value);
    }
    return fmt::format("<path class='curve {}' stroke-width='{:.1f}' d='{}'/>\n", color_class(curve.color),
                       stroke, path) +
           points;
}

/// Each curve is wider by `wider` than the next.
std::string drawing(const std::vector<Curve>& curves, const std::string& vertical, double wider,
                    const DrawingOptions& options = {}) {
    const Plane plane = plane_of(curves, options);
    std::string svg = fmt::format("<svg viewBox='0 0 {} {}' role='img' aria-label='{} over steps'>\n",
                                  options.width, options.height, escaped(vertical)) +
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

std::string curves(const std::vector<Curve>& curves, const std::string& vertical,
                   const DrawingOptions& options) {
    return drawing(curves, vertical, 0, options);
}

std::string nested_curves(const std::vector<Curve>& curves, const std::string& vertical) {
    return drawing(curves, vertical, 1.5);
}

}  // namespace mantissa::html
