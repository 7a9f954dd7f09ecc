// Ugly sizes as a table, as JSON and as a page.
#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/printable.h"
#include "mantissa/report/html.h"
#include "mantissa/report/lint.h"
#include "mantissa/report/quantities.h"

namespace mantissa::inline v0 {

namespace {

/// "h.0.attn (gpt2.cpp:42) and 47 more".
std::string places(const LintFinding& finding) {
    std::vector<std::string> where = finding.where;
    if (!finding.line.empty()) where[0] += fmt::format(" ({})", finding.line);
    return names_text(where, 1);
}

std::string measurement_text(const LintFinding& finding) {
    if (!finding.measured) return "not measured";
    const LintMeasurement& measured = *finding.measured;
    const bool by_work = finding.rule->gain == LintGain::arithmetic;
    return fmt::format("{} ms -> {} ms{}, gain {:.3f}x{}{}", milliseconds_text(measured.ugly_milliseconds),
                       milliseconds_text(measured.nice_milliseconds),
                       by_work ? fmt::format(" for {:.2f}x the work", measured.work) : "", measured.gain,
                       by_work ? " for the same arithmetic" : "",
                       measured.gains() ? "" : fmt::format(", noise {:.3f}", measured.noise));
}

std::string reason(const LintFinding& finding) {
    return fmt::format("not a multiple of {}{}: {}", finding.multiple,
                       finding.note.empty() ? "" : fmt::format(" ({})", finding.note), finding.rule->why);
}

std::string heading(std::size_t width) {
    return fmt::format("{:<12} {:>8} {:>8}  {:<{}}  {}\n", "size", "is", "make it", "where", width,
                       "forward and backward there, medians in turns");
}

std::string finding_line(const LintFinding& finding, std::size_t width) {
    return fmt::format("{:<12} {:>8} {:>8}  {:<{}}  {}\n", finding.rule->size, finding.extent,
                       finding.change_to, places(finding), width, measurement_text(finding));
}

std::string finding_text(const LintFinding& finding, std::size_t width) {
    return finding_line(finding, width) + "    " + wrapped(reason(finding), 104, 4) + "\n";
}

}  // namespace

std::string lint_table(const LintReport& report) {
    std::string text =
        fmt::format("{}, {} a step, {}, on {} ({}, {})\n", report.model.name, report.model.examples,
                    report.policy, report.target.name, report.target.isa, threads_text(report.target));
    std::vector<LintFinding> ugly, harmless;
    std::size_t width = 5;  // "where"
    for (const LintFinding& finding : report.findings) {
        (finding.harmless() ? harmless : ugly).push_back(finding);
        width = std::max(width, places(finding).size());
    }
    if (ugly.empty()) text += "no ugly size found\n";
    if (!ugly.empty()) text += "\n" + heading(width);
    for (const LintFinding& finding : ugly) text += finding_text(finding, width);
    if (harmless.empty()) return text;
    text += "\nno multiples either, but changing them gains nothing here: within the noise of measuring\n" +
            (ugly.empty() ? heading(width) : "");
    for (const LintFinding& finding : harmless) text += finding_line(finding, width);
    return text;
}

std::string lint_json(const LintReport& report) {
    Table findings{{"size", "is", "change_to", "multiple", "where", "note", "why", "measured"}};
    for (const LintFinding& finding : report.findings) {
        Datum measured = nullptr;
        if (const auto& times = finding.measured)
            measured = Fields{{"ugly_ms", times->ugly_milliseconds},
                              {"nice_ms", times->nice_milliseconds},
                              {"work", times->work},
                              {"gain", times->gain},
                              {"noise", times->noise},
                              {"gains", times->gains()},
                              {"by", finding.rule->gain == LintGain::result ? "result" : "arithmetic"}};
        findings.add(finding.rule->size, finding.extent, finding.change_to, finding.multiple, finding.where,
                     finding.note, finding.rule->why, measured);
    }
    return json_of("lint", {{"machine", machine_of(report.target)},
                            {"model", report.model.name},
                            {"policy", report.policy},
                            {"batch", report.model.batch},
                            {"sequence", report.model.units_per_example},
                            {"findings", findings}});
}

std::string lint_html(const LintReport& report, const std::string& command) {
    Grid grid{{"size", "is", "make it", "where", "forward and backward there", "why"}};
    for (const LintFinding& finding : report.findings)
        grid.rows.push_back({std::string(finding.rule->size), std::to_string(finding.extent),
                             std::to_string(finding.change_to), places(finding), measurement_text(finding),
                             reason(finding)});
    const std::string found = report.findings.empty() ? "<p>No ugly size found.</p>" : html::table(grid);
    return html::page(fmt::format("ugly sizes of {}", report.model.name),
                      fmt::format("<h1>Ugly sizes of {}</h1><p>{} a step, {}, on {}</p>{}{}",
                                  html::escaped(report.model.name), html::escaped(report.model.examples),
                                  html::escaped(report.policy), html::escaped(report.target.name), found,
                                  html::footer(command)));
}

}  // namespace mantissa
