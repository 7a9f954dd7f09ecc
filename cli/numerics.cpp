#include "cli/numerics.h"

#include <fmt/format.h>

#include <memory>

#include "cli/converge.h"
#include "cli/output_file.h"
#include "cli/run_options.h"
#include "mantissa/data/batches.h"
#include "mantissa/report/numerics.h"

namespace mantissa::cli {

namespace {

struct Options {
    RunOptions run;
    std::string html, command;
};

void run(const Options& given) {
    const RunOptions& options = given.run;
    TrainerOptions settings = trainer_options(options);
    settings.pipeline.policy = find_policy("fp32");
    const auto device = open_device(options);
    const Corpus corpus = open_corpus(options, CorpusOptions::Untokenized::bytes);
    Trainer trainer(*device, settings);
    const BatchSource batches(corpus.stream, corpus.stream.all(),
                              {.batch = settings.batch, .sequence = settings.sequence});
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(trainer.tokens_per_step()));
    std::vector<std::int32_t> targets(tokens.size());
    ProgressLine progress(options.quiet);
    for (std::int64_t step = 0; step < options.steps; ++step) {
        progress.show(fmt::format("step {} of {}", step + 1, options.steps));
        batches.fill(static_cast<std::uint64_t>(step), 0, tokens, targets);
        trainer.step(tokens, targets, options.learning_rate);
    }
    progress.clear();
    batches.fill(static_cast<std::uint64_t>(options.steps), 0, tokens, targets);
    const NumericsReport report = measure_numerics(trainer, tokens, targets);
    fmt::print("{}\n{}", corpus.description + "\n", numerics_table(report));
    write_output(options.json, numerics_json(report));
    write_output(given.html, numerics_html(report, given.command));
}

}  // namespace

void add_numerics_command(CLI::App& app, const std::string& typed) {
    const auto options = std::make_shared<Options>();
    options->command = typed;
    options->run.steps = 10;
    CLI::App* command = app.add_subcommand(
        "numerics",
        "Hold the numbers of a training step against the ranges of formats, after some steps in FP32");
    add_run_options(*command, options->run);
    add_output_file(*command, "--html", options->html,
                    "Write it as a page, with a histogram of every tensor");
    add_converge_command(*command, typed);
    command->callback([options, command] {
        if (command->get_subcommands().empty()) run(*options);
    });
}

}  // namespace mantissa::cli
