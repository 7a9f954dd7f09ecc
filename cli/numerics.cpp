// `mantissa numerics`: the numbers of a training step against the ranges of formats.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/output_file.h"
#include "cli/progress_line.h"
#include "cli/run_options.h"
#include "cli/training_data.h"
#include "mantissa/base/error.h"
#include "mantissa/report/numerics.h"

namespace mantissa::cli {

namespace {

struct NumericsCommand {
    RunOptions run;
    ImageDataOptions images;
    std::string html, command;
};

void run(const NumericsCommand& given) {
    const RunOptions& options = given.run;
    TrainerOptions settings = trainer_options(options);
    settings.policy = find_policy("fp32");
    settings.loss_scale = traced_loss_scale();
    const auto device = open_device(options);
    const TrainingData data = open_training_data(options, given.images, settings.batch);
    Trainer trainer(*device, data.model, settings);
    if (!options.from.empty()) begin_with_files(options, data, trainer.state());
    ProgressLine progress(options.quiet);
    const NumericsReport report =
        run_numerics(trainer, *data.batches,
                     {.steps = options.steps,
                      .learning_rate = options.learning_rate,
                      .progress = [&](const std::string& what) { progress.show(what); }});
    progress.clear();
    fmt::print("{}\n{}", data.description + "\n", numerics_table(report));
    write_output(options.json, numerics_json(report));
    write_output(given.html, numerics_html(report, given.command));
    std::fflush(stdout);  // what was found stands before what is concluded
    if (const std::string fault = report.fault(); !fault.empty())
        throw UserError(fault + "; a lower --learning-rate may help");
}

}  // namespace

void add_numerics_command(CLI::App& app, const std::string& typed) {
    const auto options = std::make_shared<NumericsCommand>();
    options->command = typed;
    options->run.steps = 10;
    CLI::App* command = app.add_subcommand(
        "numerics",
        "Hold the numbers of a training step against the ranges of formats, after some steps in FP32");
    add_converge_command(*command, typed);  // first: it would inherit the section of the last option
    add_run_options(*command, options->run);
    add_image_data_options(*command, options->images);
    add_from_option(*command, options->run,
                    "Begin with these weights instead of random ones: a checkpoint, or model.safetensors and "
                    "config.json as published; with the tokenizer beside them");
    begin_section(*command, "Reports");
    add_output_file(*command, "--html", options->html,
                    "Write it as a page, with a histogram of every tensor");
    command->callback([options, command] {
        if (!command->get_subcommands().empty()) return;
        take_model_of_files(*command, options->run);
        take_tokenizer_of_files(options->run);
        require_images(*command, options->images);
        run(*options);
    });
}

}  // namespace mantissa::cli
