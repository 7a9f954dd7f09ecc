// `mantissa ladder`: the rungs on equal weights and text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/output_file.h"
#include "cli/print_error.h"
#include "cli/progress_line.h"
#include "cli/run_options.h"
#include "cli/training_data.h"
#include "mantissa/base/error.h"
#include "mantissa/report/kept_peaks.h"
#include "mantissa/report/ladder.h"
#include "mantissa/report/quantities.h"
#include "mantissa/runtime/state_block.h"

namespace mantissa::cli {

namespace {

struct LadderCommand {
    RunOptions run;
    std::string rungs;  ///< empty: default_rungs()
    std::string html, command;
    std::int64_t repeats = 3;
    bool choose_batch = false;  ///< size from ladder_size
};

/// Chooses fewer sequences a step, rather than fewer rungs, on slow machines, and prints the choice.
void choose_batch(Device& device, LadderOptions& ladder) {
    const LadderSize size = ladder_size(device, ladder);
    ladder.trainer.batch = size.batch;
    fmt::print("{} a step, about {} by this machine's peaks{}\n", nn::batch_text(ladder.model, size.batch),
               duration_text(size.seconds),
               size.batch == size.max_that_fits
                   ? std::string()
                   : fmt::format("; --batch {} fits the memory, too, and takes about {}", size.max_that_fits,
                                 duration_text(size.seconds_of_most)));
    std::fflush(stdout);
}

void run(const LadderCommand& options) {
    LadderOptions ladder;
    ladder.model = model_to_train(options.run);
    ladder.trainer = trainer_options(options.run);
    ladder.steps = options.run.steps;
    ladder.repeats = options.repeats;
    ladder.learning_rate = options.run.learning_rate;
    ProgressLine progress(options.run.quiet);
    ladder.progress = [&](const std::string& what) { progress.show(what); };

    const auto device = open_device(options.run);
    ladder.rungs = options.rungs.empty() ? default_rungs(device->target()) : split_at(',', options.rungs);
    const std::vector<std::string> known = ladder_rungs();
    for (const std::string& rung : ladder.rungs)
        if (std::ranges::find(known, rung) == known.end())
            throw UserError(
                fmt::format("--rungs: there is no rung '{}'; there are: {}", rung, fmt::join(known, ", ")));
    KeptPeaks kept(*device, peaks_file());
    ladder.known_peaks = kept.peaks();
    ladder.known_from = kept.place();
    if (options.choose_batch) choose_batch(*device, ladder);
    const TrainingData data = open_training_data(options.run, ladder.model, ladder.trainer.batch,
                                                 CorpusOptions::Untokenized::train);
    if (!options.run.from.empty())
        ladder.begin = [&](StateBlock& weights) { begin_with_files(options.run, data, weights); };
    fmt::print("{}\n", data.description);
    std::fflush(stdout);
    const LadderReport report = run_ladder(*device, *data.batches, ladder);
    kept.raise(report.peaks);
    progress.clear();
    fmt::print("{}", with_options(ladder_table(report)));
    write_output(options.run.json, ladder_json(report));
    write_output(options.html, ladder_html(report, options.command));
}

}  // namespace

void add_ladder_command(CLI::App& app, const std::string& typed) {
    const auto options = std::make_shared<LadderCommand>();
    options->command = typed;
    options->run.model = "gpt2-124m";
    options->run.steps = 5;
    options->run.learning_rate = 3e-4;
    Command& command =
        Command::in(app, "ladder", "Train one model in ever faster ways, and compare times and losses");
    add_run_options(command, options->run);
    command.add("Model", {from_option(options->run,
                                      "Begin with these weights: a checkpoint, or a published directory with "
                                      "config.json and model.safetensors, and its tokenizer")});
    command.add(
        "Reports",
        {Row("--rungs", &options->rungs,
             fmt::format("Rungs, with commas between: {}. Default: all but fp16; tf32 where it is faster "
                         "than FP32, fp32-all (with all passes) where bf16 is not",
                         fmt::join(ladder_rungs(), ", ")),
             {.words = ladder_rungs()}),
         Row("--repeats", &options->repeats, "Timed steps of each rung, after those of training",
             {.range = {1, "1 or more"}}),
         html_option(options->html,
                     "Write the report as a page: speed, losses, memory, and what bounds each rung")});
    command.show_default("--batch", "4, 2 or 1");
    command.does([options, &command] {
        take_model_of_files(command, options->run);
        take_tokenizer_of_files(options->run);
        options->choose_batch = !command.is_given("--batch");
        run(*options);
    });
}

}  // namespace mantissa::cli
