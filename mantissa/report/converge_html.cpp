// The comparison of precisions as one page with its curves.
#include <fmt/format.h>

#include <cmath>

#include "mantissa/report/converge.h"
#include "mantissa/report/html.h"
#include "mantissa/report/html_charts.h"
#include "mantissa/report/quantities.h"

namespace mantissa::inline v0 {

namespace {

std::string charts(const ConvergeReport& report) {
    const ConvergedRun& first = report.runs.front();
    std::vector<html::Curve> losses, differences, accuracies;
    for (std::size_t r = 0; r < report.runs.size(); ++r) {
        const ConvergedRun& run = report.runs[r];
        losses.push_back({run.policy, run.losses, r});
        accuracies.push_back({run.policy, run.accuracies, r, run.accuracy_steps});
        if (r == 0) continue;
        std::vector<double> difference;
        for (std::size_t i = 0; i < std::min(run.losses.size(), first.losses.size()); ++i)
            difference.push_back(run.losses[i] - first.losses[i]);
        differences.push_back({run.policy, difference, r});
    }
    return "<h2>Losses</h2>\n<p class='note'>Curves that lie on one another are drawn inside one "
           "another.</p>\n" +
           html::nested_curves(losses, "loss") +
           html::curves(differences, "loss minus that of " + first.policy) +
           (first.accuracies.empty()
                ? ""
                : "<h2>Validation</h2>\n" +
                      html::nested_curves(accuracies, "accuracy on validation pictures"));
}

std::string summary(const ConvergeReport& report) {
    std::vector<html::Row> rows;
    for (const ConvergedRun& run : report.runs)
        rows.push_back({run.policy, fmt::format("{:.5f}", run.mean), fmt::format("{:+.6f}", run.difference),
                        fmt::format("{:.6f}", run.allowed), fmt::format("{:+.6f}", run.furthest),
                        fmt::format("{}", run.furthest_step), fmt::format("{}", run.skipped),
                        run.scaled ? fmt::format("{:g}", run.loss_scale) : "-",
                        run.scaled ? percent(run.lost) : "-",
                        run.accuracies.empty() ? "-" : percent(run.accuracies.back()),
                        run.agrees()          ? "agrees"
                        : run.gave_up.empty() ? "does not agree"
                                              : "given up: " + run.gave_up});
    return html::table({"policy", fmt::format("mean of the last {} losses", report.averaged),
                        "from " + report.runs.front().policy, "allowed", "one step furthest", "at step",
                        "steps skipped", "loss scale", "gradients lost", "accuracy", ""},
                       rows) +
           "<p>" + html::escaped(verdict(report)) + ".</p>\n";
}

std::string fault(const ConvergeReport& report) {
    const std::vector<std::string> places = where_to_look(report);
    if (places.empty()) return "";
    std::string text = "<h2>Where to look for the fault, in this order</h2>\n<ol>\n";
    for (const std::string& place : places) text += "<li>" + html::escaped(place) + "</li>\n";
    return text + "</ol>\n";
}

std::string every_loss(const ConvergeReport& report) {
    html::Row header{"step"};
    for (const ConvergedRun& run : report.runs) header.push_back(run.policy);
    std::vector<html::Row> rows;
    for (std::size_t step = 0; step < static_cast<std::size_t>(report.steps); ++step) {
        html::Row row{fmt::format("{}", step)};
        for (const ConvergedRun& run : report.runs)
            row.push_back(step < run.losses.size() ? fmt::format("{:.6f}", run.losses[step]) : "-");
        rows.push_back(std::move(row));
    }
    return "<details><summary>Every loss</summary>\n" + html::table(header, rows) + "</details>\n";
}

}  // namespace

std::string converge_html(const ConvergeReport& report, const std::string& command) {
    const std::string body = fmt::format(
        "<p>The same weights and batches in each precision: {} a step, {} steps, learning "
        "rate {}, seed {}. Losses are those before each update.</p>\n",
        report.model.examples, report.steps, report.learning_rate.text(), report.seed);
    const std::string broken =
        report.broken().empty() ? "" : "<p><b>" + html::escaped(verdict(report)) + ".</b></p>\n";
    return html::page(fmt::format("{} in {} precisions", report.model.name, report.runs.size()),
                      broken + body + summary(report) + fault(report) + charts(report) + every_loss(report) +
                          html::footer(command));
}

}  // namespace mantissa
