#include "cli/lint.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/output_file.h"
#include "cli/progress_line.h"
#include "cli/run_options.h"
#include "mantissa/base/error.h"
#include "mantissa/report/lint.h"

namespace mantissa::cli {

namespace {

struct LintCommand {
    RunOptions run;
    int repeats = 5;
    bool no_measure = false;
};

/// The forward pass in the formats of the policy, with attention found.
Graph forward_pass(const nn::Model& model, const TrainerOptions& settings) {
    const auto trace = [&](Graph& graph) { return nn::trace_loss(model, graph, settings.batch); };
    return build_evaluation(trace, {.policy = settings.pipeline.policy, .match_attention = true}).graph;
}

void run(const LintCommand& options) {
    if (options.repeats < 1)
        throw UserError(fmt::format("--repeats must be 1 or more, got {}", options.repeats));
    TrainerOptions settings = trainer_options(options.run);
    const auto device = open_device(options.run);
    settings.pipeline.policy = policy_for(options.run, device->target());
    const nn::Model model = training_model(options.run);
    LintReport report{.model = reported(model, nn::facts_of(model, settings.batch), settings.batch),
                      .policy = settings.pipeline.policy.name,
                      .target = device->target(),
                      .findings = lint(forward_pass(model, settings), device->target())};
    ProgressLine progress(options.run.quiet);
    for (LintFinding& finding : report.findings) {
        if (options.no_measure) break;
        progress.show(
            fmt::format("measuring {} {} against {}", finding.rule->size, finding.extent, finding.change_to));
        finding.measured = measure_lint(*device, finding, options.repeats);
    }
    progress.clear();
    fmt::print("{}", lint_table(report));
    write_output(options.run.json, lint_json(report));
}

}  // namespace

void add_lint_command(CLI::App& app) {
    const auto options = std::make_shared<LintCommand>();
    options->run.model = "gpt2-124m";
    options->run.steps = 1;
    options->run.batch = 4;
    CLI::App* command = app.add_subcommand(
        "lint", "Name ugly sizes in a model, what to make of them, and what that gains on this machine");
    add_model_options(*command, options->run);
    add_from_option(*command, options->run,
                    "Whose model: a checkpoint, or model.safetensors and config.json as published");
    add_policy_option(*command, options->run);
    add_machine_options(*command, options->run);
    command->add_option("--repeats", options->repeats, "Times that each size is measured")
        ->capture_default_str();
    command->add_flag("--no-measure", options->no_measure, "Measure nothing");
    command->add_flag("--quiet", options->run.quiet, "Print no progress");
    command->callback([options, command] {
        take_model_of_files(*command, options->run);
        run(*options);
    });
}

}  // namespace mantissa::cli
