// `mantissa lint`: ugly sizes in a model, what to make of them, and what that gains here.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/option_with_default.h"
#include "cli/output_file.h"
#include "cli/progress_line.h"
#include "cli/run_options.h"
#include "mantissa/base/error.h"
#include "mantissa/graph/graph.h"
#include "mantissa/report/lint.h"

namespace mantissa::cli {

namespace {

struct LintCommand {
    RunOptions run;
    int repeats = 5;
    bool no_measure = false;
};

void run(const LintCommand& options) {
    if (options.repeats < 1)
        throw UserError(fmt::format("--repeats must be 1 or more, got {}", options.repeats));
    const TrainerOptions settings = trainer_options(options.run);
    const auto device = open_device(options.run);
    ProgressLine progress(options.run.quiet);
    const LintReport report = run_lint(*device, training_model(options.run),
                                       {.policy = policy_for(options.run, device->target()),
                                        .batch = settings.batch,
                                        .repeats = options.no_measure ? 0 : options.repeats,
                                        .progress = [&](const std::string& what) { progress.show(what); }});
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
    add_with_default(*command, "--repeats", options->repeats, "Measurements of each size");
    command->add_flag("--no-measure", options->no_measure, "Measure nothing");
    command->add_flag("--quiet", options->run.quiet, "Print no progress");
    command->callback([options, command] {
        take_model_of_files(*command, options->run);
        run(*options);
    });
}

}  // namespace mantissa::cli
