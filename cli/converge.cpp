// `mantissa numerics converge`: the same training in several precisions.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/image_data.h"
#include "cli/output_file.h"
#include "cli/progress_line.h"
#include "cli/run_options.h"
#include "cli/training_data.h"
#include "mantissa/base/error.h"
#include "mantissa/report/converge.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/image_scores.h"

namespace mantissa::cli {

namespace {

struct ConvergeCommand {
    RunOptions run;
    std::vector<std::string> policies = {"fp32", "tf32", "bf16", "fp16"}, emulate;
    double tolerance = -1, loss_scale = 0;
    int seeds = 3;
    bool has_loss_scale = false;
    std::string html, command;
    ImageDataOptions images;
    double min_learning_rate = -1;  ///< negative: constant learning rate
    std::int64_t warmup = default_warmup, validate_every = 0;
    double clip = default_clip;
};

LearningRateSchedule schedule_of(const ConvergeCommand& options) {
    const double peak = options.run.learning_rate;
    return {.peak = peak,
            .least = options.min_learning_rate < 0 ? peak : options.min_learning_rate,
            .warmup = options.warmup,
            .steps = options.run.steps};
}

TrainingData open_data(const ConvergeCommand& options) {
    const std::int64_t batch = trainer_options(options.run).batch;
    if (options.images.directory.empty() && options.validate_every > 0)
        throw UserError("--validate-every counts images that are named right: give --images DIR");
    return open_training_data(options.run, options.images, batch,
                              options.validate_every > 0 ? HoldOut::by_name : HoldOut::nothing);
}

void validate_on(const ImageData& images, std::int64_t every, ConvergeOptions& converge) {
    converge.validate_every = every;
    converge.accuracy = [&images](Trainer& trainer) {
        const ImageBatches& held_out = *images.validation;
        return ImageScorer(trainer)
            .score(held_out, held_out.steps_per_epoch(), images.read_threads,
                   [](std::uint64_t, std::uint64_t) {})
            .top1_share();
    };
}

/// Throws UserError, after all is printed and written, if a policy does not agree.
void run(const ConvergeCommand& options) {
    if (options.has_loss_scale && !(options.loss_scale > 0))
        throw UserError(fmt::format("--loss-scale must be above 0, got {}", options.loss_scale));
    const TrainingData data = open_data(options);
    ConvergeOptions converge{.policies = {},
                             .model = data.model,
                             .trainer = trainer_options(options.run),
                             .begin = {},
                             .steps = options.run.steps,
                             .learning_rate = schedule_of(options),
                             .tolerance = options.tolerance,
                             .seeds = options.seeds,
                             .fixed_loss_scale = options.loss_scale};
    converge.trainer.optimizer =
        in_option("--clip", [&] { return clipped(converge.trainer.optimizer, options.clip); });
    for (const std::string& name : options.policies)
        converge.policies.push_back(in_option("--policies", [&] { return find_policy(name); }));
    for (const std::string& format : options.emulate)
        converge.policies.push_back(in_option("--emulate", [&] { return emulated(format); }));
    in_option("--policies", [&] { require_comparable(converge.policies); });
    if (options.has_loss_scale && std::ranges::none_of(converge.policies, &Policy::needs_loss_scale))
        throw UserError("--loss-scale belongs to fp16, which is none of --policies; leave it out");
    ProgressLine progress(options.run.quiet);
    converge.progress = [&](const std::string& what) { progress.show(what); };
    if (!options.run.from.empty())
        converge.begin = [&](StateBlock& weights) { begin_with_files(options.run, data, weights); };
    const auto device = open_device(options.run);
    if (options.validate_every > 0) validate_on(*data.images, options.validate_every, converge);
    const ConvergeReport report = run_converge(*device, *data.batches, converge);
    progress.clear();
    fmt::print("{}\n{}", data.description, converge_table(report));
    write_output(options.run.json, converge_json(report));
    write_output(options.html, converge_html(report, options.command));
    std::fflush(stdout);  // so that results precede the conclusion
    if (!report.broken().empty())
        throw UserError(fmt::format(
            "{}; a {} may help", verdict(report),
            report.runs.front().scale_at_fault ? "smaller --loss-scale" : "lower --learning-rate"));
    if (report.none_differs() && !report.all_agree())
        throw UserError(fmt::format("{}; give more --steps", verdict(report)));
    if (!report.all_agree())
        throw UserError(fmt::format("not all precisions agree with {}", report.runs.front().policy));
}

}  // namespace

void add_converge_command(CLI::App& numerics, const std::string& typed) {
    const auto options = std::make_shared<ConvergeCommand>();
    options->command = typed;
    options->run.steps = 20;
    Command& command =
        Command::in(numerics, "converge",
                    "Train the same model in several precisions and hold their losses against one another; "
                    "ends with 1 where one does not agree with the first, or too few steps tell");
    add_run_options(command, options->run);
    add_image_data_options(command, options->images);
    command.add(
        "Model",
        {from_option(options->run,
                     "Begin with these weights instead of random ones, whatever the seed, so that --seeds is "
                     "1: a checkpoint, or model.safetensors and config.json as published")});
    command.add("Training",
                {Row("--min-learning-rate", &options->min_learning_rate,
                     "Final learning rate of the cosine decay (default: no decay)"),
                 Row("--warmup", &options->warmup, "Steps over which the learning rate rises from 0"),
                 Row("--clip", &options->clip, "Largest norm of the gradients; 0: no clipping")});
    describe_rate_of_trained_weights(command);
    command.add(
        "Validation and samples",
        {Row("--validate-every", &options->validate_every,
             "With --images: steps between validations, whose accuracies are shown and not judged; 0: never",
             {.range = {0, "0 (never) or more steps"}}),
         Row("--tolerance", &options->tolerance,
             "Largest difference of the mean of the last losses from the first precision's (default: the "
             "spread over --seeds; at least tf32 0.001, the others 0.02)",
             {.range = {0, "0 or more"}}),
         Row("--seeds", &options->seeds,
             "Initial weights for the first precision, to see how far its own losses lie apart; 1: no such "
             "comparison",
             {.range = {1, "1 or more"}})});
    command.add(
        "Formats and passes",
        {Row("--policies", &options->policies,
             fmt::format("Precisions, with commas between: {}; the others are compared with the first",
                         fmt::join(policy_names(), ", ")),
             {.commas = true, .words = policy_names()}),
         Row("--emulate", &options->emulate,
             "Emulated precisions to compare after these, of tf32, bf16, fp16, with commas between",
             {.commas = true}),
         Row("--loss-scale", &options->loss_scale,
             "Loss scale of fp16 that stays (default: dynamic, from 65536)")});
    command.add("Reports", {html_option(options->html, "Write the report as a page, with the curves")});
    command.does([options, &command, &numerics] {
        take_model_of_files(command, options->run);
        take_tokenizer_of_files(options->run);
        command.require_company();
        take_rate_of_trained_weights(command, options->run);
        if (!options->run.from.empty() && !command.is_given("--seeds")) options->seeds = 1;
        for (const CLI::Option* option : numerics.get_options())
            if (option->count() > 0)
                throw UserError(
                    fmt::format("{} stands before converge, which has options of its own: give it behind",
                                option->get_name()));
        if (command.is_given("--tolerance") && options->seeds > 1 && command.is_given("--seeds"))
            throw UserError("--seeds finds what --tolerance says; give one of them");
        options->has_loss_scale = command.is_given("--loss-scale");
        run(*options);
    });
}

}  // namespace mantissa::cli
