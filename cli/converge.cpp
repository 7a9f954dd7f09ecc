#include "cli/converge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/command_line.h"
#include "cli/output_file.h"
#include "cli/run_options.h"
#include "cli/training_data.h"
#include "mantissa/base/error.h"
#include "mantissa/report/converge.h"

namespace mantissa::cli {

namespace {

struct Options {
    RunOptions run;
    std::vector<std::string> policies = {"fp32", "tf32", "bf16", "fp16"}, simulate;
    double tolerance = -1, loss_scale = 0;
    int seeds = 3;
    bool has_tolerance = false, has_loss_scale = false;
    std::string html, command;
};

void validate(const Options& options) {
    if (options.has_tolerance && !(options.tolerance >= 0))
        throw UserError(fmt::format("--tolerance must be 0 or more, got {}", options.tolerance));
    if (options.seeds < 1) throw UserError(fmt::format("--seeds must be 1 or more, got {}", options.seeds));
    if (options.has_loss_scale && !(options.loss_scale > 0))
        throw UserError(fmt::format("--loss-scale must be above 0, got {}", options.loss_scale));
}

/// Throws UserError, once all is printed and written, where one does not agree.
void run(const Options& options) {
    validate(options);
    ConvergeOptions converge{.policies = {},
                             .model = model_to_train(options.run),
                             .trainer = trainer_options(options.run),
                             .steps = options.run.steps,
                             .learning_rate = options.run.learning_rate,
                             .tolerance = options.tolerance,
                             .seeds = options.seeds,
                             .fixed_loss_scale = options.loss_scale};
    for (const std::string& name : options.policies)
        converge.policies.push_back(in_option("--policies", [&] { return find_policy(name); }));
    for (const std::string& format : options.simulate)
        converge.policies.push_back(in_option("--simulate", [&] { return simulated(format); }));
    in_option("--policies", [&] { require_comparable(converge.policies); });
    if (options.has_loss_scale && std::ranges::none_of(converge.policies, &Policy::needs_loss_scale))
        throw UserError("--loss-scale is of fp16, which is none of --policies; leave it out");
    ProgressLine progress(options.run.quiet);
    converge.progress = [&](const std::string& what) { progress.show(what); };
    const auto device = open_device(options.run);
    const TrainingData data = open_training_data(options.run, converge.model, converge.trainer.batch,
                                                 CorpusOptions::Untokenized::bytes);
    const ConvergeReport report = run_converge(*device, *data.batches, converge);
    progress.clear();
    fmt::print("{}\n{}", data.description, converge_table(report));
    write_output(options.run.json, converge_json(report));
    write_output(options.html, converge_html(report, options.command));
    std::fflush(stdout);  // what was found stands before what is concluded
    if (const ConvergedRun& first = report.runs.front(); !first.gave_up.empty())
        throw UserError(
            fmt::format("{} itself was given up; a lower --learning-rate may help", first.policy));
    if (!report.all_agree())
        throw UserError(fmt::format("not all precisions agree with {}", report.runs.front().policy));
}

}  // namespace

void add_converge_command(CLI::App& numerics, const std::string& typed) {
    const auto options = std::make_shared<Options>();
    options->command = typed;
    options->run.steps = 20;
    CLI::App* command = numerics.add_subcommand(
        "converge",
        "Train the same model in several precisions and hold their losses against one another; ends with 1 "
        "where one does not agree with the first");
    add_run_options(*command, options->run);
    command
        ->add_option(
            "--policies", options->policies,
            fmt::format("Precisions, with commas between, of {}; the first is what the others are held "
                        "against",
                        fmt::join(policy_names(), ", ")))
        ->delimiter(',')
        ->capture_default_str();
    command
        ->add_option("--simulate", options->simulate,
                     "After these, FP32 with what contractions multiply rounded to tf32, bf16, fp16 first")
        ->delimiter(',');
    CLI::Option* tolerance = command->add_option("--tolerance", options->tolerance,
                                                 "How far the mean of the last losses may lie from the "
                                                 "first's (default: as far as those of --seeds lie "
                                                 "apart, and at least tf32 0.001, bf16 and fp16 0.02)");
    command
        ->add_option(
            "--seeds", options->seeds,
            "Initial weights from which the first precision is trained, to see how far its own losses "
            "lie apart; 1: one, and the least of --tolerance is allowed")
        ->capture_default_str();
    CLI::Option* loss_scale = command->add_option(
        "--loss-scale", options->loss_scale, "A number that stays, for fp16 (default: dynamic, from 65536)");
    add_output_file(*command, "--html", options->html, "Write it as a page, with the curves");
    command->callback([options, command, tolerance, loss_scale, &numerics] {
        for (const CLI::Option* option : numerics.get_options())
            if (option->count() > 0)
                throw UserError(
                    fmt::format("{} stands before converge, which has options of its own: give it behind",
                                option->get_name()));
        options->has_tolerance = tolerance->count() > 0;
        if (options->has_tolerance && command->get_option("--seeds")->count() > 0)
            throw UserError("--seeds finds what --tolerance says; give one of them");
        options->has_loss_scale = loss_scale->count() > 0;
        run(*options);
    });
}

}  // namespace mantissa::cli
