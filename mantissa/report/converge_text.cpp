// The comparison of precisions as a table and as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "mantissa/base/version.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/report/converge.h"

namespace mantissa::inline v0 {

namespace {

/// A number that is not a number has no place in JSON: null.
nlohmann::ordered_json number(double value) {
    return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

std::string cell(const ConvergedRun& run, std::size_t step) {
    return step < run.losses.size() ? fmt::format("{:.5f}", run.losses[step]) : "-";
}

/// Every step, or where there are many about twenty of them; the last always.
std::string loss_lines(const ConvergeReport& report) {
    std::string text = fmt::format("{:>6}", "step");
    for (const ConvergedRun& run : report.runs) text += fmt::format(" {:>14}", run.policy);
    text += "\n";
    const auto steps = static_cast<std::size_t>(report.steps);
    const std::size_t every = std::max<std::size_t>(1, ceil_div(steps, 20));
    for (std::size_t step = 0; step < steps; ++step) {
        if (step % every != 0 && step + 1 != steps) continue;
        text += fmt::format("{:>6}", step);
        for (const ConvergedRun& run : report.runs) text += fmt::format(" {:>14}", cell(run, step));
        text += "\n";
    }
    return text;
}

/// What the means were held against.
std::string spread_text(const ConvergeReport& report) {
    const SeedSpread& spread = report.spread;
    const std::string& first = report.runs.front().policy;
    if (spread.seeds.size() < 2)
        return fmt::format("{} was trained from one seed, so nothing says how far its own losses lie apart\n",
                           first);
    return fmt::format("{} from the seeds {} ends at {:.5f}: {:.6f} apart\n", first,
                       fmt::join(spread.seeds, ", "), fmt::join(spread.means, ", "), spread.largest);
}

/// A line for each validation; empty without one.
std::string accuracy_lines(const ConvergeReport& report) {
    if (report.runs.front().accuracies.empty()) return "";
    std::string text = fmt::format("\n{:>6}  validation accuracy\n", "step");
    for (std::size_t i = 0; i < report.runs.front().accuracies.size(); ++i) {
        text += fmt::format("{:>6}", report.runs.front().accuracy_steps[i]);
        for (const ConvergedRun& run : report.runs)
            text += fmt::format(" {:>14}", i < run.accuracies.size()
                                               ? fmt::format("{:.2f} %", 100 * run.accuracies[i])
                                               : "-");
        text += "\n";
    }
    return text;
}

}  // namespace

std::string verdict(const ConvergeReport& report) {
    std::vector<std::string> agree, differ;
    for (std::size_t i = 1; i < report.runs.size(); ++i)
        (report.runs[i].agrees() ? agree : differ).push_back(report.runs[i].policy);
    const ConvergedRun& first = report.runs.front();
    if (const std::string broken = report.broken(); !broken.empty())
        return fmt::format("{} does not train, so there is nothing to agree with: it {}", first.policy,
                           broken);
    const std::string means = report.averaged == 1
                                  ? "the last step's loss"
                                  : fmt::format("the mean of the last {} losses", report.averaged);
    if (differ.empty()) return fmt::format("all agree with {}, by {}", first.policy, means);
    return fmt::format(
        "{} {} not agree with {}{}, by {}", fmt::join(differ, ", "), differ.size() == 1 ? "does" : "do",
        first.policy,
        agree.empty() ? ""
                      : fmt::format("; {} {}", fmt::join(agree, ", "), agree.size() == 1 ? "does" : "do"),
        means);
}

std::string converge_table(const ConvergeReport& report) {
    std::string text =
        fmt::format("{}, {} a step, {} steps, learning rate {}, seed {}\n\n", report.model.name,
                    report.model.examples, report.steps, report.learning_rate.text(), report.seed) +
        (report.broken().empty() ? "" : verdict(report) + "\n\n") + loss_lines(report) +
        accuracy_lines(report);
    const std::string& first = report.runs.front().policy;
    text += "\n" + spread_text(report);
    text += fmt::format("\n{:<14} {:>13} {:>14} {:>9} {:>22} {:>8} {:>8} {:>11}  {}\n", "policy",
                        fmt::format("mean, last {}", report.averaged), "from " + first, "allowed",
                        "one step furthest", "at step", "skipped", "loss scale", "");
    for (const ConvergedRun& run : report.runs)
        text +=
            fmt::format("{:<14} {:>13.5f} {:>+14.6f} {:>9.6f} {:>+22.6f} {:>8} {:>8} {:>11}  {}\n",
                        run.policy, run.mean, run.difference, run.allowed, run.furthest, run.furthest_step,
                        run.skipped, run.scaled ? fmt::format("{:g}", run.loss_scale) : "-",
                        run.agrees()          ? "agrees"
                        : run.gave_up.empty() ? "does not agree"
                                              : "given up");
    if (report.broken().empty()) text += verdict(report) + "\n";
    for (const ConvergedRun& run : report.runs)
        if (!run.gave_up.empty()) text += fmt::format("{} was given up: {}\n", run.policy, run.gave_up);
    const std::vector<std::string> places = where_to_look(report);
    if (!places.empty()) text += "\nwhere to look for the fault, in this order\n";
    for (std::size_t i = 0; i < places.size(); ++i) text += fmt::format("{}. {}\n", i + 1, places[i]);
    return text;
}

std::string converge_json(const ConvergeReport& report) {
    nlohmann::ordered_json json = {{"command", "numerics converge"},
                                   {"version", version()},
                                   {"commit", commit()},
                                   {"model", report.model.name},
                                   {"batch", report.model.batch},
                                   {"sequence", report.model.units_per_example},
                                   {"steps", report.steps},
                                   {"seed", report.seed},
                                   {"learning_rate", report.learning_rate.peak},
                                   {"min_learning_rate", report.learning_rate.least},
                                   {"warmup", report.learning_rate.warmup},
                                   {"averaged", report.averaged},
                                   {"spread",
                                    {{"seeds", report.spread.seeds},
                                     {"means", report.spread.means},
                                     {"largest", number(report.spread.largest)}}},
                                   {"runs", nlohmann::ordered_json::array()}};
    for (const ConvergedRun& run : report.runs) {
        nlohmann::ordered_json losses = nlohmann::ordered_json::array();
        for (const double loss : run.losses) losses.push_back(number(loss));
        json["runs"].push_back({{"policy", run.policy},
                                {"losses", std::move(losses)},
                                {"accuracies", run.accuracies},
                                {"accuracy_steps", run.accuracy_steps},
                                {"mean_of_last", number(run.mean)},
                                {"difference", number(run.difference)},
                                {"furthest", number(run.furthest)},
                                {"furthest_step", run.furthest_step},
                                {"allowed", run.allowed},
                                {"agrees", run.agrees()},
                                {"loss_scale", run.scaled ? number(run.loss_scale) : nullptr},
                                {"skipped", run.skipped},
                                {"lost", run.scaled ? number(run.lost) : nullptr},
                                {"gave_up", run.gave_up.empty() ? nlohmann::ordered_json(nullptr)
                                                                : nlohmann::ordered_json(run.gave_up)}});
    }
    json["trains"] = report.broken().empty();
    json["agree"] = report.all_agree();
    json["verdict"] = verdict(report);
    json["where_to_look"] = where_to_look(report);
    return json.dump(2) + "\n";
}

}  // namespace mantissa
