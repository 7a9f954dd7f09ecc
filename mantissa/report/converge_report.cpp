// The comparison of precisions as text, as JSON, and as one page with its curves.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "mantissa/base/printable.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/report/converge.h"
#include "mantissa/report/html.h"
#include "mantissa/report/quantities.h"

namespace mantissa::inline v0 {

namespace {

std::string with_sign(double value) { return fmt::format("{:+.6f}", value); }

Table weights_of(const ConvergedRun& run) {
    Table table{{"name", "line", "share"}};
    for (const WeightApart& weight : run.weights) table.add(weight.name, or_null(weight.line), weight.share);
    return table;
}

Table runs_of(const ConvergeReport& report) {
    Table table{{{"policy", "policy"},
                 "losses",
                 "accuracies",
                 "accuracy_steps",
                 {"mean_of_last", fmt::format("mean, last {}", report.averaged), decimals_of<5>},
                 {"difference", "from " + report.runs.front().policy, with_sign},
                 {"allowed", "allowed", decimals_of<6>},
                 {"furthest", "one step furthest", with_sign},
                 {"furthest_step", "at step"},
                 {"skipped", "skipped"},
                 {"loss_scale", "loss scale"},
                 {"lost", "gradients lost", percent},
                 {"", "accuracy", percent},
                 {"", "verdict"},
                 "agrees",
                 "undecided",
                 "gave_up",
                 "weights"}};
    for (const ConvergedRun& run : report.runs)
        table.add(run.policy, run.losses, run.accuracies, run.accuracy_steps, run.mean, run.difference,
                  run.allowed, run.furthest, run.furthest_step, run.skipped,
                  run.scaled ? Datum(run.loss_scale) : nullptr, run.scaled ? Datum(run.lost) : nullptr,
                  run.accuracies.empty() ? Datum() : Datum(run.accuracies.back()),
                  run.agrees()          ? std::string("agrees")
                  : run.undecided       ? "cannot tell"
                  : run.gave_up.empty() ? "does not agree"
                                        : "given up: " + run.gave_up,
                  run.agrees(), run.undecided, or_null(run.gave_up), weights_of(run));
    return table;
}

/// A row for every `every` steps and for the last; a column per precision.
Grid losses_of(const ConvergeReport& report, std::size_t every) {
    Grid grid{{"step"}};
    for (const ConvergedRun& run : report.runs) grid.headings.push_back(run.policy);
    const auto steps = static_cast<std::size_t>(report.steps);
    for (std::size_t step = 0; step < steps; ++step) {
        if (step % every != 0 && step + 1 != steps) continue;
        Grid::Row& row = grid.rows.emplace_back(Grid::Row{std::to_string(step)});
        for (const ConvergedRun& run : report.runs)
            row.push_back(step < run.losses.size() ? with_decimals(run.losses[step], 6) : "-");
    }
    return grid;
}

/// A row per validation; empty without one.
Grid accuracies_of(const ConvergeReport& report) {
    Grid grid{{"step"}};
    for (const ConvergedRun& run : report.runs) grid.headings.push_back(run.policy);
    for (std::size_t i = 0; i < report.runs.front().accuracies.size(); ++i) {
        Grid::Row& row =
            grid.rows.emplace_back(Grid::Row{fmt::format("{}", report.runs.front().accuracy_steps[i])});
        for (const ConvergedRun& run : report.runs)
            row.push_back(i < run.accuracies.size() ? fmt::format("{:.2f} %", 100 * run.accuracies[i]) : "-");
    }
    return grid;
}

/// A row per weight that ends furthest from the first run's; empty if no run names any.
Grid weights_of(const ConvergeReport& report) {
    Grid grid{
        {"policy", "weights furthest from " + report.runs.front().policy, "line", "of the way it went"}};
    for (const ConvergedRun& run : report.runs)
        for (const WeightApart& weight : run.weights)
            grid.rows.push_back({run.policy, weight.name, weight.line.empty() ? "-" : weight.line,
                                 fmt::format("{:.2g} %", 100 * weight.share)});
    return grid;
}

/// The meaning of the shares above, a sentence a line.
std::string note_on_weights(const ConvergeReport& report) {
    return fmt::format(
        "The share is how far a weight ends from {0}'s, over how far {0} moved it. It is not judged:\n"
        "where gradients are little but rounding, as of the bias of attention's keys, weights drift apart.\n",
        report.runs.front().policy);
}

/// The spread of seeds that the means were compared with.
std::string spread_text(const ConvergeReport& report) {
    const SeedSpread& spread = report.spread;
    const std::string& first = report.runs.front().policy;
    if (spread.seeds.size() < 2)
        return fmt::format("{} was trained from one seed, so nothing says how far its own losses lie apart\n",
                           first);
    return fmt::format("{} from the seeds {} ends at {:.5f}: {:.6f} apart\n", first,
                       fmt::join(spread.seeds, ", "), fmt::join(spread.means, ", "), spread.largest);
}

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
                : "<h2>Validation</h2>\n" + html::nested_curves(accuracies, "accuracy on validation images"));
}

std::string fault(const ConvergeReport& report) {
    const std::vector<std::string> places = where_to_look(report);
    if (places.empty()) return "";
    std::string text = "<h2>Where to look for the fault, in this order</h2>\n<ol>\n";
    for (const std::string& place : places) text += "<li>" + html::escaped(place) + "</li>\n";
    return text + "</ol>\n";
}

}  // namespace

std::string verdict(const ConvergeReport& report) {
    std::vector<std::string> agree, differ, unknown;
    for (std::size_t i = 1; i < report.runs.size(); ++i) {
        const ConvergedRun& run = report.runs[i];
        (run.agrees() ? agree : run.undecided ? unknown : differ).push_back(run.policy);
    }
    const ConvergedRun& first = report.runs.front();
    if (const std::string broken = report.broken(); !broken.empty())
        return fmt::format("{} does not train, so there is nothing to agree with: it {}", first.policy,
                           broken);
    const std::string means = report.averaged == 1
                                  ? "the last step's loss"
                                  : fmt::format("the mean of the last {} losses", report.averaged);
    if (differ.empty() && !unknown.empty())
        return fmt::format("cannot tell whether {} {} with {}: {} ({:.4f}) than the loss has fallen ({:.4f})",
                           fmt::join(unknown, ", "), unknown.size() == 1 ? "agrees" : "agree", first.policy,
                           report.spread.largest >= first.fallen() ? "seeds end further apart"
                                                                   : "losses may lie further apart",
                           std::max(report.spread.largest, report.runs.back().allowed), first.fallen());
    if (differ.empty()) return fmt::format("all agree with {}, by {}", first.policy, means);
    return fmt::format(
        "{} {} not agree with {}{}, by {}", fmt::join(differ, ", "), differ.size() == 1 ? "does" : "do",
        first.policy,
        agree.empty() ? ""
                      : fmt::format("; {} {}", fmt::join(agree, ", "), agree.size() == 1 ? "does" : "do"),
        means);
}

std::string converge_table(const ConvergeReport& report) {
    const std::size_t every = std::max<std::size_t>(1, ceil_div(static_cast<std::size_t>(report.steps), 20));
    const Grid accuracies = accuracies_of(report);
    std::string text = fmt::format(
        "{}, {} a step, {}, learning rate {}, seed {}\n\n{}{}{}\n{}\n{}", report.model.name,
        report.model.examples, count_text(report.steps, "step"), report.learning_rate.text(), report.seed,
        report.broken().empty() ? "" : verdict(report) + "\n\n", losses_of(report, every).text(),
        accuracies.rows.empty() ? "" : "\nvalidation accuracy\n" + accuracies.text(), spread_text(report),
        runs_of(report).text());
    if (report.broken().empty()) text += verdict(report) + "\n";
    if (const Grid weights = weights_of(report); !weights.rows.empty())
        text += "\n" + weights.text() + note_on_weights(report);
    const std::vector<std::string> places = where_to_look(report);
    if (!places.empty()) text += "\nwhere to look for the fault, in this order\n";
    for (std::size_t i = 0; i < places.size(); ++i) text += fmt::format("{}. {}\n", i + 1, places[i]);
    return text;
}

std::string converge_json(const ConvergeReport& report) {
    return json_of("numerics converge", {{"model", report.model.name},
                                         {"batch", report.model.batch},
                                         {"sequence", report.model.units_per_example},
                                         {"steps", report.steps},
                                         {"seed", report.seed},
                                         {"learning_rate", report.learning_rate.peak},
                                         {"min_learning_rate", report.learning_rate.least},
                                         {"warmup", report.learning_rate.warmup},
                                         {"averaged", report.averaged},
                                         {"spread.seeds", report.spread.seeds},
                                         {"spread.means", report.spread.means},
                                         {"spread.largest", report.spread.largest},
                                         {"runs", runs_of(report)},
                                         {"trains", report.broken().empty()},
                                         {"agree", report.all_agree()},
                                         {"verdict", verdict(report)},
                                         {"where_to_look", where_to_look(report)}});
}

std::string converge_html(const ConvergeReport& report, const std::string& command) {
    const std::string body = fmt::format(
        "<p>The same weights and batches in each precision: {} a step, {}, learning "
        "rate {}, seed {}. Losses are those before each update.</p>\n",
        report.model.examples, count_text(report.steps, "step"), report.learning_rate.text(), report.seed);
    const Grid weights = weights_of(report);
    const std::string broken =
        report.broken().empty() ? "" : "<p><b>" + html::escaped(verdict(report)) + ".</b></p>\n";
    return html::page(fmt::format("{} in {}", report.model.name, count_text(report.runs.size(), "precision")),
                      broken + body + html::table(runs_of(report).on_page()) + "<p>" +
                          html::escaped(verdict(report)) + ".</p>\n" + fault(report) +
                          (weights.rows.empty() ? ""
                                                : html::table(weights) + "<p class='note'>" +
                                                      html::escaped(note_on_weights(report)) + "</p>\n") +
                          charts(report) + "<details><summary>Every loss</summary>\n" +
                          html::table(losses_of(report, 1)) + "</details>\n" + html::footer(command));
}

}  // namespace mantissa
