// Ugly sizes as a table and as JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "mantissa/base/version.h"
#include "mantissa/report/lint.h"

namespace mantissa::inline v0 {

namespace {

/// "h.0.attn and 47 more".
std::string places(const std::vector<std::string>& where) {
    if (where.size() == 1) return where[0];
    return fmt::format("{} and {} more", where[0], where.size() - 1);
}

std::string measurement_text(const LintFinding& finding) {
    if (!finding.measured) return "not measured";
    const LintMeasurement& measured = *finding.measured;
    return fmt::format("{:.1f} ms -> {:.1f} ms, gain {:.3f}x{}", measured.ugly_milliseconds,
                       measured.nice_milliseconds, measured.gain,
                       finding.rule->gain == LintGain::arithmetic ? " for the same arithmetic" : "");
}

/// Text in lines of at most 100 characters, each behind an indentation.
std::string wrapped(std::string_view text) {
    constexpr std::size_t width = 100;
    std::string lines;
    while (text.size() > width) {
        const std::size_t end = text.rfind(' ', width);
        if (end == text.npos) break;
        lines += fmt::format("    {}\n", text.substr(0, end));
        text.remove_prefix(end + 1);
    }
    return lines + fmt::format("    {}\n", text);
}

}  // namespace

std::string lint_table(const LintReport& report) {
    std::string text =
        fmt::format("{}, {} a step, {}, on {} ({}, {} threads)\n", report.model.name, report.model.examples,
                    report.policy, report.target.name, report.target.isa, report.target.threads);
    if (report.findings.empty()) return text + "no ugly size found\n";
    text += fmt::format("\n{:<12} {:>8} {:>8}  {:<40} {}\n", "size", "is", "make it", "where",
                        "forward and backward there, medians in turns");
    for (const LintFinding& finding : report.findings) {
        text += fmt::format("{:<12} {:>8} {:>8}  {:<40} {}\n", finding.rule->size, finding.extent,
                            finding.change_to, places(finding.where), measurement_text(finding));
        const std::string note = finding.note.empty() ? "" : fmt::format(" ({})", finding.note);
        text += wrapped(fmt::format("not a multiple of {}{}: {}", finding.multiple, note, finding.rule->why));
    }
    return text;
}

std::string lint_json(const LintReport& report) {
    nlohmann::ordered_json json;
    json["command"] = "lint";
    json["version"] = version();
    json["commit"] = commit();
    json["machine"] = {
        {"cpu", report.target.name}, {"isa", report.target.isa}, {"threads", report.target.threads}};
    json["model"] = report.model.name;
    json["policy"] = report.policy;
    json["batch"] = report.model.batch;
    json["sequence"] = report.model.units_per_example;
    json["findings"] = nlohmann::json::array();
    for (const LintFinding& finding : report.findings) {
        nlohmann::ordered_json entry = {{"size", finding.rule->size},     {"is", finding.extent},
                                        {"change_to", finding.change_to}, {"multiple", finding.multiple},
                                        {"where", finding.where},         {"note", finding.note},
                                        {"why", finding.rule->why},       {"measured", nullptr}};
        if (finding.measured)
            entry["measured"] = {{"ugly_ms", finding.measured->ugly_milliseconds},
                                 {"nice_ms", finding.measured->nice_milliseconds},
                                 {"gain", finding.measured->gain},
                                 {"by", finding.rule->gain == LintGain::result ? "result" : "arithmetic"}};
        json["findings"].push_back(std::move(entry));
    }
    return json.dump(2) + "\n";
}

}  // namespace mantissa
