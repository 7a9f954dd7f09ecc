// The comparison of precisions as a table and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "mantissa/base/version.h"
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
    const std::size_t every = std::max<std::size_t>(1, (steps + 19) / 20);
    for (std::size_t step = 0; step < steps; ++step) {
        if (step % every != 0 && step + 1 != steps) continue;
        text += fmt::format("{:>6}", step);
        for (const ConvergedRun& run : report.runs) text += fmt::format(" {:>14}", cell(run, step));
        text += "\n";
    }
    return text;
}

}  // namespace

std::string converge_table(const ConvergeReport& report) {
    std::string text =
        fmt::format("{}, {} a step, {} steps, learning rate {:g}, seed {}\n\n", report.model.name,
                    report.model.examples, report.steps, report.learning_rate, report.seed) +
        loss_lines(report);
    const std::string& first = report.runs.front().policy;
    text += fmt::format("\n{:<14} {:>13} {:>22} {:>8} {:>9} {:>8} {:>11}  {}\n", "policy", "mean, last 20",
                        "furthest from " + first, "at step", "allowed", "skipped", "loss scale", "");
    for (const ConvergedRun& run : report.runs)
        text += fmt::format("{:<14} {:>13.5f} {:>+22.6f} {:>8} {:>9} {:>8} {:>11}  {}\n", run.policy,
                            run.last_mean(), run.furthest, run.furthest_step, run.tolerance, run.skipped,
                            run.scaled ? fmt::format("{:g}", run.loss_scale) : "-",
                            run.agrees()          ? "agrees"
                            : run.gave_up.empty() ? "does not agree"
                                                  : "given up");
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
                                   {"learning_rate", report.learning_rate},
                                   {"runs", nlohmann::ordered_json::array()}};
    for (const ConvergedRun& run : report.runs) {
        nlohmann::ordered_json losses = nlohmann::ordered_json::array();
        for (const double loss : run.losses) losses.push_back(number(loss));
        json["runs"].push_back({{"policy", run.policy},
                                {"losses", std::move(losses)},
                                {"mean_of_last", number(run.last_mean())},
                                {"furthest", number(run.furthest)},
                                {"furthest_step", run.furthest_step},
                                {"tolerance", run.tolerance},
                                {"agrees", run.agrees()},
                                {"loss_scale", run.scaled ? number(run.loss_scale) : nullptr},
                                {"skipped", run.skipped},
                                {"lost", run.scaled ? number(run.lost) : nullptr},
                                {"gave_up", run.gave_up.empty() ? nlohmann::ordered_json(nullptr)
                                                                : nlohmann::ordered_json(run.gave_up)}});
    }
    json["where_to_look"] = where_to_look(report);
    return json.dump(2) + "\n";
}

}  // namespace mantissa
