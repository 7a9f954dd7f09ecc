#include "mantissa/report/numerics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "mantissa/base/printable.h"
#include "mantissa/graph/graph.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/report/html.h"
#include "mantissa/report/quantities.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/training_plan.h"

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

namespace {

/// The histogram of an FP32 value in memory now.
ExponentHistogram histogram_of(const Execution& execution, Value value) {
    ExponentHistogram histogram;
    execution.read_in_pieces(value, [&](std::int64_t, std::span<const std::byte> bytes) {
        histogram.add({reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)});
        return true;
    });
    return histogram;
}

/// By node: whether its outputs contain the loss scale as a factor.
std::vector<bool> gradients_of(const Graph& graph) {
    std::vector<bool> scaled(graph.size(), false);
    bool found = false;
    for (NodeId i = 0; i < graph.end(); ++i) {
        const Node& node = graph.node(i);
        const bool is_scale = node.op->name == "state" && node.attributes.word("name") == "loss_scale.scale";
        found = found || is_scale;
        scaled[i] = is_scale || std::ranges::any_of(node.inputs, [&](const Value& input) {
                        return scaled[static_cast<std::size_t>(input.node)];
                    });
    }
    check(found, "measure_numerics: the trainer has no traced_loss_scale()");
    return scaled;
}

void add_outputs(const Execution& execution, NodeId id, bool is_gradient, NumericsReport& report) {
    const Node& node = execution.plan().graph().node(id);
    for (std::size_t output = 0; output < node.outputs.size(); ++output) {
        if (node.outputs[output].dtype != DType::f32) continue;
        const ExponentHistogram histogram = histogram_of(execution, {id, static_cast<std::int32_t>(output)});
        NumericsOfKind& kind = is_gradient ? report.gradients : report.activations;
        std::string name = fmt::format("{} {}", node.origin.scope, node.op->name);
        if (node.origin.line) name += fmt::format(" ({})", node.origin.line.text());
        kind.add(std::move(name), histogram);
    }
}

double share(std::int64_t part, std::int64_t all) {
    return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

std::string percents(double share) { return fmt::format("{:.2f} %", 100 * share); }

/// Effect of FP16 on magnitudes in (2^(top - 4), 2^top].
const char* in_f16(int top) {
    if (top <= -25) return "zero";
    if (top <= -14) return "fewer bits";
    return top <= 15 ? "" : "infinite";
}

/// Four exponents a line, between the smallest and the largest that occur.
Grid histogram_grid(const NumericsReport& report) {
    Grid grid{{"up to", "weights", "activations", "gradients", "in FP16", "gradients"}};
    const ExponentHistogram* const all[] = {&report.weights.all, &report.activations.all,
                                            &report.gradients.all};
    // Lines end at 2^-25, 2^-21, ..., so that one ends at FP16's beginning.
    for (int top = 131; top >= -149; top -= 4) {
        double shares[3];
        for (int i = 0; i < 3; ++i)
            shares[i] = share(all[i]->at_most(top) - all[i]->at_most(top - 4), all[i]->numbers());
        if (shares[0] + shares[1] + shares[2] == 0) continue;
        grid.rows.push_back({fmt::format("2^{}", top), percents(shares[0]), percents(shares[1]),
                             percents(shares[2]), in_f16(top),
                             std::string(static_cast<std::size_t>(std::lround(40 * shares[2])), '#')});
    }
    return grid;
}

Grid worst_tensors(const NumericsReport& report) {
    std::vector<TensorNumerics> tensors = report.gradients.tensors;
    std::ranges::stable_sort(tensors, std::greater{},
                             [](const TensorNumerics& tensor) { return tensor.histogram.lost_in_f16(0); });
    if (tensors.size() > 10) tensors.resize(10);
    const int proposed = proposed_scale_exponent(report.gradients.all);
    Grid grid{{"gradient", "greatest", "at 1", fmt::format("at 2^{}", proposed)}};
    for (const auto& [name, histogram] : tensors)
        grid.rows.push_back({name, fmt::format("{:.3g}", histogram.greatest()),
                             percents(histogram.lost_in_f16(0)), percents(histogram.lost_in_f16(proposed))});
    return grid;
}

Fields fields_of(const ExponentHistogram& histogram) {
    Datum::List exponents;
    for (int exponent = ExponentHistogram::lowest; exponent <= ExponentHistogram::highest; ++exponent)
        if (histogram.count(exponent) > 0)
            exponents.push_back(Datum::List{exponent, histogram.count(exponent)});
    return {{"numbers", histogram.numbers()},
            {"zeros", histogram.zeros()},
            {"not_finite", histogram.not_finite()},
            {"greatest", histogram.greatest()},
            {"exponents", exponents}};
}

Table tensors_of(const NumericsReport& report) {
    Table table{{"kind", "name", "numbers", "zeros", "not_finite", "greatest", "lost", "lost_at_proposed"}};
    const int proposed = proposed_scale_exponent(report.gradients.all);
    for (const auto& [kind, name] : {std::pair{&report.weights, "weight"},
                                     {&report.activations, "activation"},
                                     {&report.gradients, "gradient"}})
        for (const auto& [tensor, histogram] : kind->tensors)
            table.add(name, tensor, histogram.numbers(), histogram.zeros(), histogram.not_finite(),
                      histogram.greatest(), histogram.lost_in_f16(0), histogram.lost_in_f16(proposed));
    return table;
}

}  // namespace

void NumericsOfKind::add(std::string name, const ExponentHistogram& histogram) {
    all.add(histogram);
    tensors.push_back({std::move(name), histogram});
}

std::string NumericsReport::fault() const {
    if (const std::int64_t bad = gradients.all.not_finite(); bad > 0)
        return fmt::format("{} of the gradients' {} numbers are not finite", bad,
                           gradients.all.numbers() + gradients.all.zeros() + bad);
    if (const std::int64_t bad = weights.all.not_finite(); bad > 0)
        return fmt::format("{} of the weights are not finite", bad);
    const auto broken = std::ranges::find_if_not(losses, [](double loss) { return std::isfinite(loss); });
    if (broken != losses.end())
        return fmt::format("the loss of step {} is {}", broken - losses.begin(), *broken);
    constexpr double several = 2;
    if (losses.empty() || losses.front() <= 0 || losses.back() <= several * losses.front()) return "";
    return fmt::format("the loss has climbed from {:.4g} to {:.4g}: this does not train", losses.front(),
                       losses.back());
}

std::vector<ScaledGradients> at_loss_scales(const NumericsReport& report) {
    const ExponentHistogram& gradients = report.gradients.all;
    const bool is_sound = report.fault().empty();
    const int proposed = proposed_scale_exponent(gradients);
    std::vector<ScaledGradients> lines;
    for (int exponent = 0; exponent <= 24;
         exponent += exponent < proposed && proposed < exponent + 4 ? proposed - exponent : 4)
        lines.push_back(
            {.exponent = exponent,
             .lost = gradients.lost_in_f16(exponent),
             .overflows = std::ldexp(static_cast<double>(gradients.greatest()), exponent) >= 65520,
             .proposed = is_sound && exponent == proposed});
    return lines;
}

Grid loss_scales(const NumericsReport& report) {
    Grid grid{{"loss scale", "", "gradients lost", ""}};
    for (const ScaledGradients& scaled : at_loss_scales(report))
        grid.rows.push_back({fmt::format("2^{}", scaled.exponent),
                             with_decimals(std::ldexp(1, scaled.exponent), 0),
                             fmt::format("{:.3f} %", 100 * scaled.lost),
                             scaled.proposed    ? "<- choose this"
                             : scaled.overflows ? "the greatest becomes infinite"
                                                : ""});
    return grid;
}

LossScaleOptions traced_loss_scale() {
    return {.kind = LossScaleOptions::Kind::dynamic, .initial = 1, .growth = 1, .floor = 1};
}

NumericsReport measure_numerics(Trainer& trainer, const Batch& batch) {
    NumericsReport report{.model = trainer.model().name, .steps = trainer.steps_done()};
    for (const State& state : trainer.state().states()) {
        if (state.kind != State::Kind::parameter) continue;
        const std::vector<std::byte> bytes = trainer.state().read(state.name);
        ExponentHistogram histogram;
        histogram.add({reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)});
        report.weights.add(state.name, histogram);
    }
    trainer.look_into(batch, [&](Execution& execution) {
        const Graph& graph = execution.plan().graph();
        const std::vector<bool> gradients = gradients_of(graph);
        execution.run_while([&](NodeId id) { return graph.node(id).origin.stage != Stage::update; },
                            [&](NodeId id) {
                                add_outputs(execution, id, gradients[static_cast<std::size_t>(id)], report);
                                return true;
                            });
    });
    return report;
}

std::string numerics_table(const NumericsReport& report) {
    std::string losses;
    if (!report.losses.empty())
        losses = fmt::format("loss {:.4f} at step 0, {:.4f} at step {}\n", report.losses.front(),
                             report.losses.back(), report.losses.size() - 1);
    if (const std::string fault = report.fault(); !fault.empty())
        losses += fmt::format("no loss scale is proposed: {}\n", fault);
    return losses +
           fmt::format(
               "{}, step {}: magnitudes of {} weights, {} activations, {} gradients (zeros apart: {} of the "
               "gradients)\n"
               "BF16 and TF32 have the range of FP32: they lose bits, never the number\n\n{}\n"
               "what FP16 loses of the gradients\n{}\n{}",
               report.model, report.steps, report.weights.all.numbers(), report.activations.all.numbers(),
               report.gradients.all.numbers(), report.gradients.all.zeros(), histogram_grid(report).text(),
               loss_scales(report).text(), worst_tensors(report).text());
}

std::string numerics_json(const NumericsReport& report) {
    const ExponentHistogram& gradients = report.gradients.all;
    const std::string fault = report.fault();
    Table lost{{"scale", "share"}};
    for (int exponent = 0; exponent <= 24; ++exponent)
        lost.add(std::ldexp(1.0, exponent), gradients.lost_in_f16(exponent));
    return json_of("numerics",
                   {{"model", report.model},
                    {"steps", report.steps},
                    {"weights", fields_of(report.weights.all)},
                    {"activations", fields_of(report.activations.all)},
                    {"gradients", fields_of(gradients)},
                    {"losses", report.losses},
                    {"fault", or_null(fault)},
                    {"proposed_scale",
                     fault.empty() ? Datum(std::ldexp(1.0, proposed_scale_exponent(gradients))) : nullptr},
                    {"lost_at_scale", lost},
                    {"tensors", tensors_of(report)}});
}

NumericsReport run_numerics(Trainer& trainer, const BatchSource& batches, const NumericsOptions& options) {
    std::vector<double> losses;
    for (std::int64_t step = 0; step < options.steps; ++step) {
        if (options.progress) options.progress(fmt::format("step {} of {}", step + 1, options.steps));
        losses.push_back(static_cast<double>(trainer.step(batches, options.learning_rate).loss));
    }
    BatchBuffer buffer(trainer.model(), trainer.plan().options().batch);
    NumericsReport report =
        measure_numerics(trainer, buffer.fill(batches, static_cast<std::uint64_t>(trainer.steps_done())));
    report.losses = std::move(losses);
    return report;
}

}  // namespace mantissa
