// The numbers of a training step as one page: histograms by powers of two under the ranges of FP16, BF16 and
// TF32, together and by tensor, and the loss scale to choose.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/base/printable.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/report/html.h"
#include "mantissa/report/numerics.h"
#include "mantissa/report/quantities.h"

namespace mantissa::inline v0 {

namespace {

/// A format's range, as powers of two.
struct Range {
    const char* name;
    double subnormal, normal, end;
};

Range range_of(const char* name, DType format) {
    const FormatLimits& limits = limits_of(format);
    return {name, std::log2(limits.min_subnormal), std::log2(limits.min_normal), std::log2(limits.max)};
}

/// FP32's range with ten bits of fraction.
Range tf32_range() {
    const Range wide = range_of("TF32", DType::f32);
    return {wide.name, wide.normal - 10, wide.normal, wide.end};
}

/// Powers of two from left to right.
struct Axis {
    int low, high;
    double left, right;  ///< position in the drawing

    double x(double exponent) const {
        const double at = std::clamp(exponent, static_cast<double>(low), static_cast<double>(high));
        return left + (at - low) / (high - low) * (right - left);
    }
};

/// The axis from the smallest number to the largest, FP16's range included.
Axis axis_of(const NumericsReport& report, double left, double right) {
    Axis axis{-28, 20, left, right};
    for (const NumericsOfKind* kind : {&report.weights, &report.activations, &report.gradients})
        for (int e = ExponentHistogram::lowest; e <= ExponentHistogram::highest; ++e)
            if (kind->all.count(e) > 0) {
                axis.low = std::min(axis.low, e - 2);
                axis.high = std::max(axis.high, e + 2);
            }
    return axis;
}

std::string ticks(const Axis& axis, double y) {
    std::string svg;
    const int step = axis.high - axis.low > 80 ? 16 : 8;
    for (int e = axis.low - axis.low % step; e <= axis.high; e += step)
        if (e >= axis.low)
            svg += fmt::format("<text class='faint' x='{:.1f}' y='{:.1f}' text-anchor='middle'>2^{}</text>",
                               axis.x(e), y, e);
    return svg + "\n";
}

/// Three lines of FP16: its beginning, half of its smallest number, which rounds to zero; the beginning of
/// its full precision; its end.
std::string f16_lines(const Axis& axis, double top, double bottom) {
    const Range f16 = range_of("FP16", DType::f16);
    std::string svg;
    for (const double at : {f16.subnormal - 1, f16.normal, f16.end})
        svg += fmt::format("<path class='roof' stroke-dasharray='3 3' d='M{:.1f} {:.1f}V{:.1f}'/>",
                           axis.x(at), top, bottom);
    return svg + "\n";
}

/// A bar for each format, paler where it has fewer bits, and dashed lines down at FP16's ends.
std::string ranges(const Axis& axis, double y) {
    std::string svg;
    std::size_t color = 3;
    for (const Range& range : {range_of("FP16", DType::f16), range_of("BF16", DType::bf16), tf32_range()}) {
        const auto bar = [&](double from, double to, double opacity) {
            return fmt::format(
                "<rect class='fill {}' x='{:.1f}' y='{:.1f}' width='{:.1f}' height='12' fill-opacity='{}'/>",
                html::color_class(color), axis.x(from), y, axis.x(to) - axis.x(from), opacity);
        };
        svg += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='end'>{}</text>", axis.left - 8, y + 10,
                           range.name) +
               bar(range.subnormal, range.normal, 0.35) + bar(range.normal, range.end, 0.85) +
               fmt::format("<text x='{:.1f}' y='{:.1f}'>2^{:.0f} ... 2^{:.0f}</text>\n", axis.right + 8,
                           y + 10, range.subnormal, range.end);
        y += 16;
        ++color;
    }
    return svg;
}

/// The outline of a histogram in a band that ends at `bottom`. Counts are at their power of two, shifted by
/// `shift` for numbers times 2^shift. `most`: the count of full height.
std::string outline(const ExponentHistogram& histogram, const Axis& axis, double bottom, double height,
                    double most, int shift = 0) {
    std::string path;
    for (int e = axis.low; e <= axis.high; ++e) {
        const int of = e - shift;
        const bool held = of >= ExponentHistogram::lowest && of <= ExponentHistogram::highest;
        const double count = held ? static_cast<double>(histogram.count(of)) : 0;
        // Numbers in (2^(e-1), 2^e].
        if (count > 0)
            path += fmt::format("M{:.1f} {:.1f}V{:.1f}H{:.1f}V{:.1f}", axis.x(e - 1), bottom,
                                bottom - std::max(0.7, count / most * height), axis.x(e), bottom);
    }
    return path;
}

double max_of(const ExponentHistogram& histogram) {
    std::int64_t most = 1;
    for (int e = ExponentHistogram::lowest; e <= ExponentHistogram::highest; ++e)
        most = std::max(most, histogram.count(e));
    return static_cast<double>(most);
}

struct Layer {
    std::string name;
    const ExponentHistogram& histogram;
    std::size_t color;
    int shift = 0;
};

/// Histograms one below another, each on its own scale, under the ranges.
std::string chart(const NumericsReport& report, const std::vector<Layer>& layers) {
    constexpr double first = 58, band = 96;
    const Axis axis = axis_of(report, 150, 880);
    const double end = first + band * static_cast<double>(layers.size());
    std::string svg = fmt::format("<svg viewBox='0 0 1000 {:.0f}' role='img'>\n", end + 24) +
                      ranges(axis, 4) + f16_lines(axis, 4, end);
    double bottom = first;
    for (const Layer& layer : layers) {
        bottom += band;
        const double most = max_of(layer.histogram);
        svg += fmt::format(
            "<path class='fill {}' d='{}'/><path class='axis' d='M{:.1f} {:.1f}H{:.1f}'/>"
            "<text x='{:.1f}' y='{:.1f}' text-anchor='end'>{}</text>"
            "<text class='faint' x='{:.1f}' y='{:.1f}'>tallest: {}</text>\n",
            html::color_class(layer.color),
            outline(layer.histogram, axis, bottom, band - 14, most, layer.shift), axis.left, bottom,
            axis.right, axis.left - 8, bottom - 34, html::escaped(layer.name), axis.right + 8,
            bottom - band + 24,
            percent(most / static_cast<double>(std::max<std::int64_t>(1, layer.histogram.numbers()))));
    }
    return svg + ticks(axis, end + 16) + "</svg>\n";
}

/// A line for each tensor: name, histogram, and its loss in FP16.
std::string tensors(const NumericsReport& report, const char* title, const NumericsOfKind& kind,
                    std::size_t color) {
    constexpr double line = 22;
    const Axis axis = axis_of(report, 330, 740);
    const int proposed = proposed_scale_exponent(report.gradients.all);
    const double end = 20 + line * static_cast<double>(kind.tensors.size());
    std::string svg = fmt::format("<svg viewBox='0 0 1000 {:.0f}' role='img'>\n", end + 20) +
                      f16_lines(axis, 20, end) +
                      fmt::format(
                          "<text class='faint' x='800' y='12' text-anchor='end'>greatest</text>"
                          "<text class='faint' x='890' y='12' text-anchor='end'>lost at 1</text>"
                          "<text class='faint' x='990' y='12' text-anchor='end'>lost at 2^{}</text>\n",
                          proposed);
    double bottom = 20;
    for (const TensorNumerics& tensor : kind.tensors) {
        bottom += line;
        svg += fmt::format(
            "<text x='322' y='{0:.1f}' text-anchor='end'>{1}</text><path class='fill {2}' d='{3}'/>"
            "<text x='800' y='{0:.1f}' text-anchor='end'>{4:.3g}</text>"
            "<text x='890' y='{0:.1f}' text-anchor='end'>{5}</text>"
            "<text x='990' y='{0:.1f}' text-anchor='end'>{6}</text>\n",
            bottom - 5, html::escaped(tensor.name), html::color_class(color),
            outline(tensor.histogram, axis, bottom, line - 4, max_of(tensor.histogram)),
            tensor.histogram.greatest(), percent(tensor.histogram.lost_in_f16(0)),
            percent(tensor.histogram.lost_in_f16(proposed)));
    }
    return fmt::format("<details{}><summary>{}: {}, {} numbers, {} zeros, {} not finite</summary>\n",
                       &kind == &report.gradients ? " open" : "", title,
                       count_text(kind.tensors.size(), "tensor"),
                       grouped(static_cast<double>(kind.all.numbers())),
                       grouped(static_cast<double>(kind.all.zeros())), kind.all.not_finite()) +
           svg + ticks(axis, end + 14) + "</svg></details>\n";
}

}  // namespace

std::string numerics_html(const NumericsReport& report, const std::string& command) {
    const ExponentHistogram& gradients = report.gradients.all;
    const int proposed = proposed_scale_exponent(gradients);
    const std::string fault = report.fault();
    const std::string body = fmt::format(
        "{}<p>Magnitudes of one training step in FP32, after {}, by powers of two. A format holds what "
        "lies under its bar; under the pale end with fewer bits. The dashed lines are FP16's: what lies left "
        "of the first, which is at half of its smallest number, becomes zero, right of the last infinite. "
        "BF16 and TF32 have the range of FP32: they lose bits, never the number.</p>\n{}"
        "<h2>The loss scale for FP16</h2>\n<p>A loss scale S moves every gradient to the right before FP16 "
        "sees it. At 1, {:.2f} % of the gradients become zero; at 2^{}{}, {:.2f} % do. It "
        "is the largest power of two, 2^24 at most, at which the greatest finite gradient is still a quarter "
        "of what FP16 holds.</p>\n{}{}<h2>Tensor by tensor</h2>\n{}{}{}{}",
        fault.empty() ? "" : "<p><b>No loss scale is proposed: " + html::escaped(fault) + ".</b></p>\n",
        count_text(report.steps, "step"),
        chart(report, {{"weights", report.weights.all, 2},
                       {"activations", report.activations.all, 0},
                       {"gradients", gradients, 1}}),
        100 * gradients.lost_in_f16(0), proposed, fault.empty() ? ", the scale to choose" : "",
        100 * gradients.lost_in_f16(proposed),
        chart(report,
              {{"gradients", gradients, 1}, {fmt::format("times 2^{}", proposed), gradients, 6, proposed}}),
        html::table(loss_scales(report)), tensors(report, "gradients", report.gradients, 1),
        tensors(report, "activations", report.activations, 0), tensors(report, "weights", report.weights, 2),
        html::footer(command));
    return html::page(fmt::format("Numbers of {} against the ranges of formats", report.model), body);
}

}  // namespace mantissa
