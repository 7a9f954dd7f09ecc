#include "cli/train.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/run_options.h"
#include "mantissa/base/error.h"
#include "mantissa/base/system_memory.h"
#include "mantissa/data/batches.h"
#include "mantissa/report/profile_table.h"

namespace mantissa::cli {

namespace {

struct Options {
    RunOptions run;
    AdamWOptions optimizer;
    std::vector<double> betas = {0.9, 0.95};
    bool profile = false;
};

/// The fastest peak, for MFU; its scratch is given back before training begins.
double fastest_peak(Device& device) {
    const auto scratch = device.allocate(std::size_t{64} << 20, "bandwidth measurement");
    return device.measure_peaks(*scratch).fastest();
}

void print_header(const RunOptions& run, const Trainer& trainer, const Corpus& corpus, const Target& target) {
    const MemoryUse memory = trainer.memory();
    const auto megabytes = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
    fmt::print("{}\n", corpus.description);
    fmt::print("{}, {} parameters, {} x {} tokens a step, fp32, {}, {} threads\n",
               trainer.options().model.name, trainer.options().model.parameters(), trainer.options().batch,
               trainer.options().sequence, target.isa, target.threads);
    fmt::print(
        "memory planned: {:.1f} MB = {:.1f} state + {:.1f} activations and gradients + {:.1f} inputs + "
        "{:.1f} "
        "the program and its text; step built in {:.0f} ms\n",
        megabytes(memory.total() + resident_memory()), megabytes(memory.state), megabytes(memory.arena),
        megabytes(memory.inputs), megabytes(resident_memory()), trainer.build_milliseconds());
    if (run.pass_times) fmt::print("{}", pass_table(trainer.pass_times()));
    std::fflush(stdout);
}

void print_step(std::int64_t index, const StepResult& result, const Trainer& trainer, const RunOptions& run,
                double peak) {
    const auto tokens = static_cast<double>(trainer.tokens_per_step());
    const double flops = tokens * trainer.options().model.flops_per_token(trainer.options().sequence);
    fmt::print(
        "step {:5d} | loss {:.6f} | lr {:.4e} | norm {:.4f} | {:.2f} ms | {:.0f} tokens/s | MFU {:.1f} %{}\n",
        index, result.loss, run.learning_rate, result.gradient_norm, result.seconds * 1e3,
        tokens / result.seconds, 100 * flops / result.seconds / peak,
        result.applied ? "" : " | not finite: skipped");
    std::fflush(stdout);
}

nlohmann::ordered_json step_json(std::int64_t index, const StepResult& result) {
    return {{"step", index},
            {"loss", result.loss},
            {"gradient_norm", result.gradient_norm},
            {"applied", result.applied},
            {"ms", result.seconds * 1e3}};
}

void run(const Options& options) {
    TrainerOptions trainer_settings = trainer_options(options.run);
    trainer_settings.optimizer = options.optimizer;
    if (options.betas.size() != 2) throw UserError("--betas takes two numbers");
    trainer_settings.optimizer.beta1 = options.betas[0];
    trainer_settings.optimizer.beta2 = options.betas[1];
    const auto device = open_device(options.run);
    const Corpus corpus = open_corpus(options.run);
    const double peak = fastest_peak(*device);
    Trainer trainer(*device, trainer_settings);
    dump_plan(options.run, trainer.plan());
    const BatchSource batches(corpus.stream, corpus.stream.all(),
                              {.batch = trainer.options().batch, .sequence = trainer.options().sequence});
    print_header(options.run, trainer, corpus, device->target());
    trainer.allocate();

    std::vector<std::int32_t> tokens(static_cast<std::size_t>(trainer.tokens_per_step())),
        targets(tokens.size());
    Profile profile;
    nlohmann::ordered_json log = {{"command", "train"}, {"model", trainer.options().model.name}};
    for (std::int64_t index = 0; index < options.run.steps; ++index) {
        batches.fill(static_cast<std::uint64_t>(index), 0, tokens, targets);
        const StepResult result = trainer.step(tokens, targets, options.run.learning_rate, &profile);
        print_step(index, result, trainer, options.run, peak);
        log["steps"].push_back(step_json(index, result));
    }
    if (options.profile) fmt::print("the last step:\n{}", profile_table(trainer.plan(), profile));
    fmt::print("memory at most: {:.1f} MB resident\n", static_cast<double>(peak_resident_memory()) / 1e6);
    log["peak_resident_bytes"] = peak_resident_memory();
    write_json(options.run.json, log.dump(2) + "\n");
}

}  // namespace

void add_train_command(CLI::App& app) {
    const auto options = std::make_shared<Options>();
    options->run.steps = 100;
    CLI::App* command = app.add_subcommand("train", "Train a model on text and print a line a step");
    add_run_options(*command, options->run);
    command->add_option("--betas", options->betas, "Of AdamW")->expected(2)->capture_default_str();
    command->add_option("--weight-decay", options->optimizer.weight_decay, "Of AdamW, on matrices")
        ->capture_default_str();
    command->add_option("--clip", options->optimizer.clip, "Scale gradients down to this norm; 0: never")
        ->capture_default_str();
    command->add_flag("--profile", options->profile, "Print where the time of the last step went");
    command->callback([options] { run(*options); });
}

}  // namespace mantissa::cli
