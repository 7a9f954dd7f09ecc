// `mantissa lint`: ugly sizes in a model, better sizes, and their gain here.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
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
    options->run.batch = 4;
    Command& command = Command::in(
        app, "lint", "Name ugly sizes in a model, what to make of them, and what that gains on this machine");
    add_model_options(command, options->run);
    command.add(
        "Model",
        {from_option(options->run,
                     "Whose model: a checkpoint, or model.safetensors and config.json as published")});
    command.add("Formats and passes", {policy_option(options->run)});
    add_machine_options(command, options->run);
    command.add(
        "Reports",
        {Row("--repeats", &options->repeats, "Measurements of each size", {.range = {1, "1 or more"}}),
         Row("--no-measure", &options->no_measure, "Measure nothing"), quiet_option(options->run.quiet)});
    command.does([options, &command] {
        take_model_of_files(command, options->run);
        run(*options);
    });
}

}  // namespace mantissa::cli
