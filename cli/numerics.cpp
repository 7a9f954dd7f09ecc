// `mantissa numerics`: the numbers of a training step compared with the formats' ranges.
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
#include "mantissa/report/rounding_losses.h"

namespace mantissa::cli {

namespace {

struct NumericsCommand {
    RunOptions run;
    ImageDataOptions images;
    std::string html, tensors, command;
};

/// The roundings of a policy below sixteen bits, in a step after a training under it.
void run_below_sixteen_bits(const NumericsCommand& given, const Policy& policy) {
    const RunOptions& options = given.run;
    if (!given.html.empty()) throw UserError("--html shows the numbers of FP32; leave out --policy");
    TrainerOptions settings = trainer_options(options);
    const auto device = open_device(options);
    settings.policy = policy;
    settings.passes = passes_to_look_into(device->target(), policy);
    const TrainingData data = open_training_data(options, given.images, settings.batch);
    Trainer trainer(*device, data.model, settings);
    if (!options.from.empty()) begin_with_files(options, data, trainer.state());
    ProgressLine progress(options.quiet);
    std::vector<double> losses;
    for (std::int64_t step = 0; step < options.steps; ++step) {
        progress.show(fmt::format("step {} of {}", step + 1, options.steps));
        losses.push_back(static_cast<double>(trainer.step(*data.batches, options.learning_rate).loss));
    }
    BatchBuffer buffer(trainer.model(), settings.batch);
    RoundingReport report = measure_rounding(
        trainer, buffer.fill(*data.batches, static_cast<std::uint64_t>(trainer.steps_done())), given.tensors);
    report.losses = std::move(losses);
    progress.clear();
    fmt::print("{}\n{}", data.description, rounding_table(report));
    write_output(options.json, rounding_json(report));
}

void run(const NumericsCommand& given) {
    const RunOptions& options = given.run;
    if (!options.policy.empty()) {
        const Policy policy = in_option("--policy", [&] { return find_policy(options.policy); });
        if (!policy.blocks)
            throw UserError(fmt::format(
                "--policy {}: give a policy below sixteen bits, or none to see the numbers of FP32",
                options.policy));
        return run_below_sixteen_bits(given, policy);
    }
    if (!given.tensors.empty()) throw UserError("--tensors is for what --policy rounds: give both");
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
    std::fflush(stdout);  // so that results precede the conclusion
    if (const std::string fault = report.fault(); !fault.empty())
        throw UserError(fault + "; a lower --learning-rate may help");
}

}  // namespace

void add_numerics_command(CLI::App& app, const std::string& typed) {
    const auto options = std::make_shared<NumericsCommand>();
    options->command = typed;
    options->run.steps = 10;
    Command& command = Command::in(
        app, "numerics",
        "Hold the numbers of a training step against the ranges of formats, after some steps in FP32");
    add_converge_command(command.app(), typed);
    add_run_options(command, options->run);
    add_image_data_options(command, options->images);
    command.add("Images", {Row("--policy", &options->run.policy,
                               "Train in this policy below sixteen bits, and show what its roundings lose, "
                               "tensor by tensor (default: FP32)")});
    command.add(
        "Model",
        {from_option(options->run,
                     "Begin with these weights instead of random ones: a checkpoint, or model.safetensors "
                     "and config.json as published; with the tokenizer beside them")});
    command.add("Reports",
                {Row("--tensors", &options->tensors,
                     "Under --policy: write what was rounded, before and after, as safetensors",
                     {.type = "FILE", .writes_file = true}),
                 html_option(options->html, "Write it as a page, with a histogram of every tensor")});
    command.does([options, &command] {
        if (!command.app().get_subcommands().empty()) return;
        take_model_of_files(command, options->run);
        take_tokenizer_of_files(options->run);
        command.require_company();
        run(*options);
    });
}

}  // namespace mantissa::cli
