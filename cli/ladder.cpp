#include "cli/ladder.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "cli/run_options.h"
#include "mantissa/report/ladder.h"

namespace mantissa::cli {

namespace {

struct Options {
    RunOptions run;
    std::string rungs = "fp32";
    std::int64_t repeats = 10;
};

std::vector<std::string> split_at_commas(const std::string& text) {
    std::vector<std::string> parts(1);
    for (char c : text) {
        if (c == ',')
            parts.emplace_back();
        else
            parts.back() += c;
    }
    return parts;
}

void run(const Options& options) {
    LadderOptions ladder;
    ladder.trainer = trainer_options(options.run);
    ladder.rungs = split_at_commas(options.rungs);
    ladder.steps = options.run.steps;
    ladder.repeats = options.repeats;
    ladder.learning_rate = options.run.learning_rate;
    ProgressLine progress(options.run.quiet);
    ladder.progress = [&](const std::string& what) { progress.show(what); };

    const auto device = open_device(options.run);
    const Corpus corpus = open_corpus(options.run);
    fmt::print("{}\n", corpus.description);
    std::fflush(stdout);
    const LadderReport report = run_ladder(*device, corpus.stream, ladder);
    progress.clear();
    fmt::print("{}", ladder_table(report));
    write_json(options.run.json, ladder_json(report));
}

}  // namespace

void add_ladder_command(CLI::App& app) {
    const auto options = std::make_shared<Options>();
    options->run.steps = 20;
    CLI::App* command =
        app.add_subcommand("ladder", "Train and time the same model on each rung of the ladder");
    add_run_options(*command, options->run);
    command->add_option("--rungs", options->rungs, "Rungs to run, with commas between: fp32")
        ->capture_default_str();
    command->add_option("--repeats", options->repeats, "Steps that are timed, after those of training")
        ->capture_default_str();
    command->callback([options] { run(*options); });
}

}  // namespace mantissa::cli
