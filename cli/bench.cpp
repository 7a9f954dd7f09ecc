// `mantissa bench`: the mixed-precision tutorial's benchmark of image networks.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <limits>
#include <memory>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/output_file.h"
#include "cli/progress_line.h"
#include "cli/run_options.h"
#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/data/synthetic_images.h"
#include "mantissa/report/bench.h"
#include "mantissa/report/kept_peaks.h"
#include "mantissa/report/quantities.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/model_file.h"
#include "mantissa/train/optimizer.h"

namespace mantissa::cli {

namespace {

struct BenchCommand {
    RunOptions run;
    BenchSize size;
    std::string from, save;  ///< files of weights; empty: none
    std::string html, command;
    bool chooses_batch = true;
    FreeBenchSize free;
    bool mixed_precision = false, disable_tf32 = false, compare = false;
};

/// The tutorial's options as precisions. TF32 unless it is switched off, here or in the environment.
std::vector<std::string> precisions_of(const BenchCommand& options, const Target& target) {
    const std::string& policy = options.run.policy;
    if (options.compare) {
        if (!policy.empty() || options.mixed_precision)
            throw UserError(fmt::format("--compare runs every precision; leave out {}",
                                        policy.empty() ? "--mixed-prec" : "--policy"));
        std::vector<std::string> names = sixteen_bit_policy_names();
        if (options.disable_tf32 || !target.cannot_multiply_tf32.empty()) std::erase(names, "tf32");
        return names;
    }
    if (!policy.empty()) {
        if (options.mixed_precision || options.disable_tf32)
            throw UserError(fmt::format("--policy {} says the precision; leave out {}", policy,
                                        options.mixed_precision ? "--mixed-prec" : "--disable-tf32"));
        if (in_option("--policy", [&] { return find_policy(policy); }).blocks)
            throw UserError(fmt::format(
                "--policy {}: the convolutions of networks for images stay in bf16 under it; give one of {}",
                policy, fmt::join(sixteen_bit_policy_names(), ", ")));
        return {policy};
    }
    if (options.mixed_precision) return {"fp16"};
    return {options.disable_tf32 || !target.cannot_multiply_tf32.empty() ? "fp32" : "tf32"};
}

std::vector<TrainerOptions> trainers_of(const BenchCommand& options, const Target& target) {
    std::vector<TrainerOptions> trainers;
    for (const std::string& name : precisions_of(options, target)) {
        TrainerOptions& trainer = trainers.emplace_back();
        trainer.optimizer = sgd();
        trainer.seed = options.run.seed;
        trainer.policy = name;
        choose_passes(options.run, target, trainer);
    }
    return trainers;
}

/// Chooses fewer images and fewer batches than the tutorial, if their numbers were not given: a CPU would run
/// for hours.
void choose_size(const BenchCommand& options, Device& device, BenchOptions& bench) {
    if (options.chooses_batch) bench.size.batch = fitting_batch(device, bench);
    bench.free = options.free;
    bench.settled = [&bench](const BenchSize& size, double seconds) {
        fmt::print(
            "{} of {}{}: about {}\n", count_text(size.iterations, "iteration"),
            count_text(size.batches, "batch", "batches"),
            bench.precisions.size() > 1 ? fmt::format(" in {} precisions", bench.precisions.size()) : "",
            duration_text(seconds));
        if (const BenchSize tutorial; size != tutorial)
            fmt::print(
                "the tutorial's are --batch-size {} --num-warmup-batches {} --num-batches-per-iter {} "
                "--num-iters {}\n",
                tutorial.batch, tutorial.warmup_batches, tutorial.batches, tutorial.iterations);
        std::fflush(stdout);
    };
}

void run(const BenchCommand& options) {
    BenchOptions bench;
    if (!nn::is_image_model(options.run.model))
        throw UserError(fmt::format("--model: there is no network '{}'; there are: {}", options.run.model,
                                    fmt::join(nn::image_model_names(), ", ")));
    const nn::ImageModel network = *image_network(options.run);
    bench.model = network.model;
    bench.size = options.size;
    const auto device = open_device(options.run);
    bench.precisions = trainers_of(options, device->target());
    KeptPeaks kept(*device, peaks_file());
    choose_size(options, *device, bench);
    fmt::print("Model: {}\nBatch size: {}\n", bench.model.name, bench.size.batch);
    if (!options.compare) fmt::print("Precision: {}\n", bench.precisions.front().policy.name);
    std::fflush(stdout);

    if (!options.from.empty())
        bench.start = [&](StateBlock& state) { load_weights(bench.model, options.from, state); };
    if (!options.save.empty())
        bench.finish = [&](const StateBlock& state) { save_weights(bench.model, state, options.save); };
    ProgressLine progress(options.run.quiet);
    bench.share_of_peak = [&](double rate) { return kept.share_of_fastest(rate); };
    bench.progress = [&](const std::string& what) { progress.show(what); };
    bench.line = [&](const std::string& precision, const std::string& line) {
        progress.clear();
        fmt::print("{}{}\n", options.compare ? fmt::format("{:<6}", precision) : "", line);
        std::fflush(stdout);
    };
    const BenchReport report = run_bench(*device, SyntheticImages(network.sizes, options.run.seed), bench);
    progress.clear();
    fmt::print("\n{}", bench_table(report));
    write_output(options.run.json, bench_json(report));
    write_output(options.html, bench_html(report, options.command));
}

}  // namespace

void add_bench_command(CLI::App& app, const std::string& typed) {
    const auto options = std::make_shared<BenchCommand>();
    options->command = typed;
    options->run.model = "ResNet50";
    Command& command =
        Command::in(app, "bench", "Time the training of a network for images on synthetic data");
    const NumberRange count{1, "1 or more", most_of_count};
    const char* const ten = "10, or fewer, so that all takes about five minutes";
    BenchSize& size = options->size;
    command.add("Model", {Row("--model", &options->run.model,
                              fmt::format("Network: {}", fmt::join(nn::image_model_names(), ", ")))});
    command.add("Model", image_options(options->run.images));
    command.add("Training",
                {Row("--batch-size", &size.batch, "Images of a batch",
                     {.shown = "16, or fewer where the memory is short", .range = count}),
                 Row("--num-warmup-batches", &size.warmup_batches,
                     "Batches before the clock runs, whose losses are printed", {.range = count}),
                 Row("--num-batches-per-iter", &size.batches, "Batches of an iteration",
                     {.shown = ten, .range = count}),
                 Row("--num-iters", &size.iterations, "Iterations", {.shown = ten, .range = count}),
                 Row("--mixed-prec", &options->mixed_precision, "FP16 with a loss scale"),
                 Row("--disable-tf32", &options->disable_tf32, "Multiply in FP32 instead of TF32"),
                 Row("--policy", &options->run.policy,
                     fmt::format("Precision policy, in place of these two: {} (default: tf32)",
                                 fmt::join(sixteen_bit_policy_names(), ", "))),
                 Row("--compare", &options->compare, "Run all precisions in turns, as the tutorial's table"),
                 Row("--from", &options->from,
                     "Begin with torchvision's weights, a safetensors file (default: random)",
                     {.type = "FILE", .is_read = true}),
                 Row("--save", &options->save, "Write the weights at the end as such a file",
                     {.type = "FILE", .writes_file = true}),
                 passes_option(options->run)});
    add_machine_options(command, options->run);
    command.add(
        "Reports",
        {html_option(options->html, "Write the report as a page: rates beside the A100's, each iteration"),
         seed_option(options->run, "Seed of weights, images and classes"), quiet_option(options->run.quiet)});
    command.does([options, &command] {
        options->chooses_batch = !command.is_given("--batch-size");
        options->free = {.batches = !command.is_given("--num-batches-per-iter"),
                         .iterations = !command.is_given("--num-iters")};
        run(*options);
    });
}

}  // namespace mantissa::cli
