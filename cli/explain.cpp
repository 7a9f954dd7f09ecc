#include "cli/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "cli/run_options.h"
#include "mantissa/base/error.h"
#include "mantissa/report/explain.h"

namespace mantissa::cli {

namespace {

struct Options {
    RunOptions run;
    std::vector<std::string> difference;
    bool nodes = false;
};

/// Plans a step and allocates nothing.
Explanation explain_policy(const RunOptions& options, const Policy& policy, Device& device) {
    TrainerOptions settings = trainer_options(options);
    settings.pipeline.policy = policy;
    const Trainer trainer(device, settings);
    Explanation explanation = explain(trainer.plan(), policy);
    explanation.model = settings.model.name;
    explanation.batch = settings.batch;
    explanation.sequence = settings.sequence;
    return explanation;
}

void run(const Options& options) {
    const auto device = open_device(options.run);
    if (!options.difference.empty()) {
        const auto of = [&](std::size_t i) {
            return explain_policy(options.run, find_policy(options.difference[i]), *device);
        };
        fmt::print("{}", explain_difference(of(0), of(1)));
        return;
    }
    const Explanation explanation =
        explain_policy(options.run, policy_for(options.run, device->target()), *device);
    fmt::print("{}", explain_table(explanation, options.nodes ? Detail::nodes : Detail::kinds));
    write_json(options.run.json, explain_json(explanation));
}

}  // namespace

void add_explain_command(CLI::App& app) {
    const auto options = std::make_shared<Options>();
    options->run.steps = 1;
    options->run.model = "gpt2-124m";
    options->run.batch = 4;
    CLI::App* command = app.add_subcommand(
        "explain", "Print what each operation is stored, multiplied and summed in, and why");
    RunOptions& run_options = options->run;
    add_model_options(*command, run_options);
    add_policy_option(*command, run_options);
    add_machine_options(*command, run_options);
    command->add_option("--diff", options->difference, "Two policies: print only what they do differently")
        ->expected(2)
        ->type_name("POLICY");
    command->add_flag("--nodes", options->nodes, "A line for each node rather than for each kind");
    command->callback([options] { run(*options); });
}

}  // namespace mantissa::cli
