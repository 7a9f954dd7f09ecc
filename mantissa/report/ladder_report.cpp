// The ladder's report: a table, JSON, and a page with the climb beside the A100's, losses, memory, and each
// rung's bounds.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "mantissa/passes/pipeline.h"
#include "mantissa/report/html.h"
#include "mantissa/report/ladder.h"
#include "mantissa/report/quantities.h"
#include "mantissa/report/source_lines.h"

namespace mantissa::inline v0 {

namespace {

/// A rung with published times.
struct PublishedRung {
    std::string_view name;  ///< of our rung
    std::string_view title, changes;
    double milliseconds;
};

constexpr PublishedRung a100_climb[] = {
    {"fp32", "float32", "stored, multiplied and summed in FP32; operations run one by one", 1000},
    {"tf32", "TF32", "matrix multiplies round FP32 operands to 10 fraction bits", 333},
    {"bf16", "BF16 autocast", "matrix multiplies and their activations in BF16", 300},
    {"compiled", "compiled", "element-wise chains fused, no interpreter", 129},
    {"flash", "FlashAttention", "the matrix of attention's scores is never stored", 96},
    {"nice", "nice numbers", "vocabulary of 50,257 padded to 50,304", 93}};
constexpr double a100_tokens = 16 * 1024;

double a100_speedup(const PublishedRung& rung) { return a100_climb[0].milliseconds / rung.milliseconds; }

Datum a100_speedup_at(const std::string& name) {
    for (const PublishedRung& rung : a100_climb)
        if (rung.name == name) return a100_speedup(rung);
    return {};
}

std::string climb(const LadderReport& report) {
    std::vector<html::Bar> here, there;
    for (const RungReport& rung : report.rungs)
        here.push_back(
            {rung.name,
             {{rung.milliseconds, 0, fmt::format("{:.1f} {}/s", rung.units_per_second, report.model.unit)}},
             fmt::format("{} ms, {:.2f}x", grouped(rung.milliseconds), rung.speedup)});
    for (const PublishedRung& rung : a100_climb)
        there.push_back({std::string(rung.title),
                         {{rung.milliseconds, 7, ""}},
                         fmt::format("{} ms, {:.2f}x", grouped(rung.milliseconds), a100_speedup(rung))});
    return fmt::format(
        "<h2>The climb</h2>\n<p class='note'>Time of a training step, and how many times faster than the "
        "first rung. Each side has its own scale.</p>\n<div class='columns'>"
        "<div><h3>This machine, {} a step</h3>\n{}</div>"
        "<div><h3>One A100, 16 x 1,024 tokens a step</h3>\n{}"
        "<p class='note'>GPT-2 124M with AdamW; figures of A. Karpathy, &quot;Let's reproduce GPT-2 "
        "(124M)&quot;, 2024. A second account of the same climb has 11.35x in all.</p></div></div>\n",
        report.model.examples, html::bars(here), html::bars(there));
}

std::string whole_milliseconds(double value) { return fmt::format("{:.0f} ms", value); }

Table padded_of(const RungReport& rung) {
    Table table{{"name", "rows", "padded_rows"}};
    for (const PaddedParameter& padded : rung.padded)
        table.add(padded.name, padded.rows, padded.rows + padded.zero_rows);
    return table;
}

Table rungs_of(const LadderReport& report) {
    const std::string& unit = report.model.unit;
    Table table{{{"name", "rung"},
                 {"ms_per_step", "ms/step", milliseconds_text},
                 {"ms_mad", "+-", milliseconds_text},
                 {unit + "_per_second", unit + "/s", grouped},
                 {"speedup", "speed-up", times},
                 {"step_speedup", "step", times},
                 {"", "speed-up, A100", times, Column::In::page},
                 {"mfu", "MFU", percent},
                 {"share_of_unit_peak", "of unit", percent},
                 {"peak_bytes", "memory", megabytes_text},
                 {"build_ms", "build", whole_milliseconds},
                 {"", "loss", nullptr, Column::In::text},
                 "losses",
                 "loss_tolerance",
                 "bounds.compute",
                 "bounds.memory",
                 "bounds.latency",
                 "kernels.matmul",
                 "kernels.attention",
                 "kernels.linear_cross_entropy",
                 "padded"}};
    for (const RungReport& rung : report.rungs)
        table.add(rung.name, rung.milliseconds, rung.deviation, rung.units_per_second, rung.speedup,
                  rung.step_speedup, a100_speedup_at(rung.name), rung.mfu, rung.share_of_unit_peak,
                  rung.peak_bytes, rung.build_milliseconds,
                  fmt::format("{:.4f} -> {:.4f}", rung.losses.front(), rung.losses.back()), rung.losses,
                  rung.loss_tolerance, rung.roofline.share_of(Bound::compute),
                  rung.roofline.share_of(Bound::memory), rung.roofline.share_of(Bound::latency),
                  rung.matmul_kernels, rung.attention_kernels, rung.loss_kernels, padded_of(rung));
    return table;
}

std::string skipped_rungs(const LadderReport& report) {
    std::string text;
    for (const SkippedRung& rung : report.skipped)
        text += fmt::format("<p class='note'>{} does not apply: {}.</p>\n", rung.name,
                            html::escaped(rung.reason));
    return text;
}

std::string peaks_line(const Peaks& peaks) {
    std::string line = fmt::format("{:.1f} GFLOP/s FP32 FMA", peaks.f32_fma / 1e9);
    if (peaks.bf16_matrix > 0) line += fmt::format(", {:.2f} TFLOP/s BF16", peaks.bf16_matrix / 1e12);
    return line + fmt::format(", {:.1f} GB/s copy", peaks.copy / 1e9);
}

std::string padding_text(const RungReport& rung) {
    if (rung.padded.empty()) return "; no size to pad";
    std::string text;
    for (const PaddedParameter& parameter : rung.padded)
        text += fmt::format("; {} padded from {} rows to {}", parameter.name, parameter.rows,
                            parameter.rows + parameter.zero_rows);
    return text;
}

std::string loss_line(const RungReport& rung) {
    std::string line = fmt::format("  {:<9}", rung.name);
    for (std::size_t i = 0; i < rung.losses.size(); ++i) {
        if (i > 0 && i % 10 == 0) line += fmt::format("\n  {:<9}", "");
        line += fmt::format(" {:7.4f}", rung.losses[i]);
    }
    return line + "\n";
}

/// The fastest rung; there is one. A policy below sixteen bits does more work than `bf16`: it is fastest only
/// if it is alone, or by chance.
const RungReport& fastest_of(const LadderReport& report) {
    return *std::ranges::min_element(report.rungs, {}, [](const RungReport& rung) {
        return std::pair(find_policy(rung.policy).blocks != nullptr, rung.milliseconds);
    });
}

/// A line that recommends the fastest rung for training. Passes are named if they are not all passes, the
/// default of `train`.
std::string fastest_line(const LadderReport& report) {
    const RungReport& rung = fastest_of(report);
    std::string passes = rung.passes.empty() ? "none" : fmt::format("{}", fmt::join(rung.passes, ","));
    if (std::ranges::is_permutation(rung.passes, runnable_passes(report.target, find_policy(rung.policy))))
        passes.clear();
    return fmt::format("fastest of these: {}, {} {}/s; to train so: `policy` {}{}\n", rung.name,
                       grouped(rung.units_per_second), report.model.unit, rung.policy,
                       passes.empty() ? passes : " `passes` " + passes);
}

std::string a100_table() {
    std::vector<html::Row> rows;
    for (const PublishedRung& rung : a100_climb)
        rows.push_back({std::string(rung.title), std::string(rung.changes), grouped(rung.milliseconds),
                        grouped(a100_tokens / rung.milliseconds * 1e3),
                        fmt::format("{:.2f}x", a100_speedup(rung))});
    return "<h2>The A100's figures</h2>\n" +
           html::table(
               {{"rung", "what changes", "ms a step", "tokens/s (from the time)", "speed-up"}, rows}) +
           "<p class='note'>Published times, rounded to the millisecond: see above for the source. Nothing "
           "on this page was measured on an A100.</p>\n";
}

/// The step with the largest difference from the first rung's loss.
std::size_t furthest_step(const RungReport& rung, const RungReport& first) {
    std::size_t furthest = 0;
    const auto distance = [&](std::size_t i) { return std::abs(rung.losses[i] - first.losses[i]); };
    for (std::size_t i = 0; i < rung.losses.size(); ++i)
        if (distance(i) > distance(furthest)) furthest = i;
    return furthest;
}

std::string losses(const LadderReport& report) {
    const RungReport& first = report.rungs.front();
    std::vector<html::Curve> losses, differences;
    std::vector<html::Row> rows;
    for (std::size_t r = 0; r < report.rungs.size(); ++r) {
        const RungReport& rung = report.rungs[r];
        losses.push_back({rung.name, rung.losses, r});
        const std::size_t furthest = furthest_step(rung, first);
        rows.push_back({rung.name, fmt::format("{:.5f}", rung.losses.front()),
                        fmt::format("{:.5f}", rung.losses.back()),
                        fmt::format("{:+.5f}", rung.losses[furthest] - first.losses[furthest]),
                        fmt::format("{}", furthest),
                        std::isinf(rung.loss_tolerance)
                            ? std::string("not judged")
                            : fmt::format("{}", std::max(rung.loss_tolerance, first.loss_tolerance))});
        if (r == 0) continue;
        std::vector<double> distance;
        for (std::size_t i = 0; i < rung.losses.size(); ++i)
            distance.push_back(rung.losses[i] - first.losses[i]);
        differences.push_back({rung.name, distance, r});
    }
    std::string text =
        "<h2>Losses</h2>\n<p class='note'>Every rung starts from the same weights and reads the "
        "same batches. Curves that lie on one another are drawn inside one another.</p>\n" +
        html::nested_curves(losses, "loss");
    if (!differences.empty()) text += html::curves(differences, "loss minus that of " + first.name);
    return text + html::table({{"rung", "first loss", "last loss", "furthest from " + first.name, "at step",
                                "allowed"},
                               rows});
}

std::string memory(const LadderReport& report) {
    std::vector<html::Bar> bars;
    for (const RungReport& rung : report.rungs)
        bars.push_back({rung.name,
                        {{static_cast<double>(rung.peak_bytes), 4, ""}},
                        fmt::format("{} MB", grouped(megabytes(rung.peak_bytes)))});
    return "<h2>Memory at most</h2>\n<p class='note'>As planned before anything is allocated: state, "
           "activations and gradients, inputs.</p>\n" +
           html::bars(bars);
}

/// "matmul 71.2 %, softmax 9.0 %": the three operations that take the most of a step.
std::string largest_operations(const Roofline& roofline) {
    std::map<std::string, double> seconds;
    for (const RooflineEntry& entry : roofline.entries) seconds[entry.op] += entry.seconds;
    std::vector<std::pair<double, std::string>> order;
    for (const auto& [op, time] : seconds) order.emplace_back(time, op);
    std::sort(order.rbegin(), order.rend());
    if (order.size() > 3) order.resize(3);
    std::vector<std::string> parts;
    for (const auto& [time, op] : order)
        parts.push_back(fmt::format("{} {}", op, percent(time / roofline.wall_seconds)));
    return fmt::format("{}", fmt::join(parts, ", "));
}

std::string kernels_of(const RungReport& rung) {
    std::vector<std::string> all = rung.matmul_kernels;
    for (const auto* more : {&rung.attention_kernels, &rung.loss_kernels})
        all.insert(all.end(), more->begin(), more->end());
    return fmt::format("{}", fmt::join(all, "; "));
}

std::string bounds(const LadderReport& report) {
    constexpr Bound kinds[] = {Bound::compute, Bound::memory, Bound::latency};
    std::vector<html::Bar> bars;
    std::vector<html::Row> rows;
    for (const RungReport& rung : report.rungs) {
        html::Bar bar{rung.name, {}, percent(rung.share_of_unit_peak) + " of its unit's peak"};
        html::Row row{rung.name};
        for (std::size_t kind = 0; kind < 3; ++kind) {
            const double share = rung.roofline.share_of(kinds[kind]);
            bar.parts.push_back({share, kind, fmt::format("{}: {}", name_of(kinds[kind]), percent(share))});
            row.push_back(percent(share));
        }
        row.insert(row.end(), {percent(1 - rung.roofline.explained()), largest_operations(rung.roofline),
                               kernels_of(rung)});
        bars.push_back(std::move(bar));
        rows.push_back(std::move(row));
    }
    return "<h2>What bounds each rung</h2>\n<p class='note'>Where the last step of training spent its time: "
           "in kernels that arithmetic limits, in kernels that memory limits, in kernels that are over too "
           "soon for either, and between kernels (the rest of a bar).</p>\n" +
           html::key({{"compute", 0}, {"memory", 1}, {"latency", 2}}) + html::bars(bars, 1) +
           html::table({{"rung", "compute", "memory", "latency", "between", "largest operations",
                         "kernels of contractions"},
                        rows});
}

std::string by_line(const LadderReport& report) {
    return "<h2>Time by source line</h2>\n<p class='note'>Milliseconds in the last step of training. What "
           "is fused counts where it begins.</p>\n" +
           html::table(source_lines_of(report));
}

std::string machine(const LadderReport& report, const std::string& command) {
    const Peaks& peaks = report.peaks;
    std::vector<html::Row> rows = {
        {"processor", report.target.name},
        {"instruction set, threads", fmt::format("{}, {}", report.target.isa, threads_text(report.target))},
        {"FP32 peak, measured", fmt::format("{:.1f} GFLOP/s", peaks.f32_fma / 1e9)}};
    if (peaks.bf16_matrix > 0)
        rows.push_back({"BF16 peak, measured",
                        fmt::format("{:.1f} GFLOP/s, {}", peaks.bf16_matrix / 1e9, report.target.bf16_unit)});
    if (!report.target.reason_of_unit.empty()) rows.push_back({"unit", report.target.reason_of_unit});
    rows.push_back({"copy, measured", fmt::format("{:.1f} GB/s, reads and writes", peaks.copy / 1e9)});
    rows.push_back(
        {"planned for the process", fmt::format("{} MB", grouped(megabytes(report.planned_bytes())))});
    return "<h2>Machine and command</h2>\n" + html::table({{"", ""}, rows}) + html::footer(command);
}

}  // namespace

std::string ladder_table(const LadderReport& report) {
    std::string text = fmt::format("{}, {} parameters, {} a step, {}\n", report.model.name,
                                   grouped(static_cast<double>(report.model.parameters)),
                                   report.model.examples, report.optimizer);
    text += fmt::format("{}, {}, {}\n", report.target.name, report.target.isa, threads_text(report.target));
    if (!report.target.cannot_compile.empty())
        text += fmt::format("without the rungs from compiled on: {}\n", report.target.cannot_compile);
    text +=
        fmt::format("peaks measured between the steps{}: {}\n\n",
                    report.known_from.empty() ? "" : fmt::format(", or earlier and {}", report.known_from),
                    peaks_line(report.peaks));
    text += rungs_of(report).text();
    for (const SkippedRung& rung : report.skipped)
        text += fmt::format("{:<9} does not apply: {}\n", rung.name, rung.reason);
    text +=
        std::isinf(report.rungs.front().loss_tolerance)
            ? "\nlosses, not held against one another: batch norms over few images amplify every rounding\n"
            : "\nlosses\n";
    for (const RungReport& rung : report.rungs) text += loss_line(rung);
    text +=
        "kernels of matmul, and of attention and the fused linear cross-entropy where they are one; what was "
        "padded\n";
    for (const RungReport& rung : report.rungs) {
        text += fmt::format("  {:<9} {}", rung.name, fmt::join(rung.matmul_kernels, ", "));
        for (const auto* kernels : {&rung.attention_kernels, &rung.loss_kernels})
            if (!kernels->empty()) text += fmt::format("; {}", fmt::join(*kernels, ", "));
        if (rung.pads) text += padding_text(rung);
        text += "\n";
    }
    text += fmt::format(
        "memory planned: {:.1f} MB = {:.1f} state + {:.1f} activations and gradients + {:.1f} inputs + "
        "{:.1f} the program and its text{}\n",
        megabytes(report.planned_bytes()), megabytes(report.memory.state), megabytes(report.memory.arena),
        megabytes(report.memory.inputs), megabytes(report.process_bytes),
        report.scratch_bytes == 0 ? ""
                                  : fmt::format(" + {:.1f} to measure the peak of copying, which training "
                                                "does not need",
                                                megabytes(report.scratch_bytes)));
    if (!report.target.reason_of_unit.empty()) text += report.target.reason_of_unit + "\n";
    if (!report.rungs.empty()) text += fastest_line(report);
    return text;
}

std::string ladder_json(const LadderReport& report) {
    const Peaks& peaks = report.peaks;
    Fields machine = machine_of(report.target);
    machine.push_back({"peaks.f32_fma_tflops", peaks.f32_fma / 1e12});
    machine.push_back(
        {"peaks.bf16_tile_tflops", peaks.bf16_matrix > 0 ? Datum(peaks.bf16_matrix / 1e12) : nullptr});
    machine.push_back({"peaks.copy_gbs", peaks.copy / 1e9});
    Fields fields{{"machine", machine},
                  {"model.name", report.model.name},
                  {"model.parameters", report.model.parameters},
                  {"batch", report.model.batch},
                  {"sequence", report.model.units_per_example},
                  {"planned_bytes", report.planned_bytes()},
                  {"rungs", rungs_of(report)}};
    if (!report.rungs.empty()) {
        const RungReport& fastest = fastest_of(report);
        fields.push_back({"fastest.rung", fastest.name});
        fields.push_back({"fastest.policy", fastest.policy});
        fields.push_back({"fastest.passes", fastest.passes});
    }
    Table skipped{{"name", "reason"}};
    for (const SkippedRung& rung : report.skipped) skipped.add(rung.name, rung.reason);
    fields.push_back({"skipped", skipped});
    return json_of("ladder", std::move(fields));
}

std::string ladder_html(const LadderReport& report, const std::string& command) {
    const RungReport& best =
        *std::max_element(report.rungs.begin(), report.rungs.end(),
                          [](const RungReport& a, const RungReport& b) { return a.speedup < b.speedup; });
    const std::string title = fmt::format("The ladder: {}, {:.2f}x from {} to {}", report.model.name,
                                          best.speedup, report.rungs.front().name, best.name);
    return html::page(
        title,
        fmt::format("<p>{} parameters, {}, {} a step, on {}.</p>\n",
                    grouped(static_cast<double>(report.model.parameters)), report.optimizer,
                    report.model.examples, html::escaped(report.target.name)) +
            climb(report) + html::table(rungs_of(report).on_page()) +
            "<p class='note'>Medians of the timed steps, their median deviation (+-), speed-up over the "
            "first rung and over the rung before (step); rungs took turns. MFU: the model's arithmetic a "
            "second over the machine's fastest matrix peak.</p>\n" +
            skipped_rungs(report) + losses(report) + memory(report) + bounds(report) + by_line(report) +
            a100_table() + machine(report, command));
}

}  // namespace mantissa
