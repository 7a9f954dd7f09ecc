// `mantissa explain`: the formats and kernels of each operation, and the rules that chose them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/explain_steps.h"
#include "cli/output_file.h"
#include "cli/print_error.h"
#include "cli/progress_line.h"
#include "cli/run_options.h"
#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/device/cuda/cuda_device.h"
#include "mantissa/device/cuda/planned/planned_gpu.h"
#include "mantissa/graph/graph.h"
#include "mantissa/report/explain.h"
#include "mantissa/report/kept_peaks.h"
#include "mantissa/report/paper_roofline.h"
#include "mantissa/report/peaks.h"
#include "mantissa/report/roofline.h"
#include "mantissa/train/forward.h"
#include "mantissa/train/memory_fit.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::cli {

namespace {

struct ExplainCommand {
    RunOptions run;
    std::vector<std::string> difference;
    std::string html, trace, command;
    bool nodes = false, roofline = false;
    RankQuestion ranks;
    ThreadQuestion threads;
    std::string card;   ///< a GPU that may be absent; empty: this machine
    double memory = 0;  ///< GB to fit into; 0: the available memory
};

/// Options for a plan that is read and never run.
TrainerOptions to_read(const RunOptions& options, const Policy& policy, const Target& target) {
    TrainerOptions settings = in_policy(options, policy, target);
    settings.make_kernels = MakeKernels::no;
    return settings;
}

/// A forward pass to the loss under a policy, as in generation and validation.
Explanation explain_inference(const RunOptions& options, const Policy& policy, Device& device) {
    const nn::Model model = training_model(options);
    const TrainerOptions settings = in_policy(options, policy, device.target());
    if (settings.lora)
        throw UserError(fmt::format("--lora trains, and --policy {} is for inference only", policy.name));
    const auto trace = [&](Graph& graph) { return nn::trace_loss(model, graph, settings.batch); };
    const PipelineOptions pipeline{.policy = policy, .lay_out = true};
    const Forward forward(device, trace, pipeline, "loss", nullptr, MakeKernels::no);
    Explanation explanation = explain(forward.plan(), pipeline);
    explanation.refused = forward.refused();
    explanation.of = "a forward pass, for inference";
    explanation.model = reported(model, nn::facts_of(model, settings.batch), settings.batch);
    return explanation;
}

/// Prints smaller plans if the step takes more memory than available.
void print_what_would_fit(const ExplainCommand& options, const Policy& policy, const MemoryAtPeak& memory,
                          Device& device) {
    const std::int64_t available =
        options.memory > 0 ? static_cast<std::int64_t>(options.memory * 1e9) : device.free_memory();
    if (memory.total() <= available) return;
    const TrainingPlan plan(device, training_model(options.run),
                            to_read(options.run, policy, device.target()));
    const auto at_length = nn::is_image_model(options.run.model)
                               ? std::function<nn::Model(std::int64_t)>()
                               : on_sequences_of(language_model(options.run), options.run);
    fmt::print("{}",
               with_options(fit_table(what_would_fit(plan, available, at_length), memory.state, available)));
}

/// Plans a step and allocates nothing.
Explanation explain_policy(const RunOptions& options, const Policy& policy, Device& device) {
    if (!policy.weights.empty()) return explain_inference(options, policy, device);
    return explain(TrainingPlan(device, training_model(options), to_read(options, policy, device.target())));
}

void run_roofline(const ExplainCommand& options, Device& device) {
    const TrainerOptions settings =
        in_policy(options.run, policy_for(options.run, device.target()), device.target());
    Trainer trainer(device, training_model(options.run), settings);
    BatchBuffer buffer(trainer.model(), settings.batch);
    const Batch batch = buffer.fill(*some_batches(options.run, trainer.model()), 0);
    ProgressLine progress(options.run.quiet);
    const Roofline report = measure_roofline(trainer, batch, known_peaks(device),
                                             [&](const std::string& what) { progress.show(what); });
    const Explanation explanation = explain(trainer.plan());
    progress.clear();
    fmt::print("{}", roofline_table(report));
    write_output(options.html, explain_html(explanation, &report, options.command));
    write_output(options.trace, roofline_trace(report));
    write_output(options.run.json, explain_json(explanation));
}

/// Plans for a card's architecture on paper, and runs nothing.
void print_on_paper(const ExplainCommand& options) {
    if (!options.roofline) throw UserError("--for is for the roofline of a GPU: it needs --roofline");
    if (!options.html.empty() || !options.trace.empty() || !options.run.json.empty())
        throw UserError("--for prints a table and does nothing else: no --html, --trace or --json");
    const Card card = in_option("--for", [&] { return card_of(options.card); });
    Expected<std::unique_ptr<Device>> device = make_cuda_device(cuda::planned_libraries(card.architecture));
    if (!device) throw UserError(device.reason() + ", for --for");
    const TrainingPlan plan(
        **device, training_model(options.run),
        to_read(options.run, policy_for(options.run, (*device)->target()), (*device)->target()));
    fmt::print("{}\n{}", explain(plan).title(),
               paper_roofline_table(plan.step(), plan.flops_per_step(), card));
}

/// A policy for inference is compared with the other policy in inference.
void print_difference(const ExplainCommand& options, Device& device) {
    if (options.roofline || !options.html.empty() || !options.trace.empty() || !options.run.json.empty())
        throw UserError(
            "--diff prints a difference and does nothing else: no --roofline, --json, --html or --trace");
    const auto compared = [&](std::size_t index) {
        return in_option("--diff", [&] { return find_policy(options.difference.at(index)); });
    };
    const Policy first = compared(0), second = compared(1);
    const bool inference = !first.weights.empty() || !second.weights.empty();
    const auto of = [&](const Policy& policy) {
        return inference ? explain_inference(options.run, policy, device)
                         : explain_policy(options.run, policy, device);
    };
    fmt::print("{}", explain_difference(of(first), of(second)));
}

void run(const ExplainCommand& options) {
    if (options.ranks.ranks != 0) {
        if (!options.difference.empty() || !options.html.empty() || !options.trace.empty() ||
            !options.run.json.empty() || options.nodes)
            throw UserError(
                "--ranks prints tables and does nothing else: no --diff, --nodes, --json, --html or --trace");
        RankQuestion question = options.ranks;
        question.measures = options.roofline;
        return explain_ranks(options.run, question, [](Device& device) { return known_peaks(device); });
    }
    if (!options.card.empty()) return print_on_paper(options);
    if (options.run.threads != 0 && !options.roofline && options.difference.empty()) {
        if (!options.html.empty() || !options.trace.empty() || options.nodes || options.memory > 0)
            throw UserError(
                "--threads predicts a step and prints tables: no --nodes, --html, --trace or --memory; with "
                "--roofline, --ranks and --diff it is the threads that are used");
        return explain_threads(options.run, options.threads);
    }
    if (options.threads.memory_rate != 0)
        throw UserError("--memory-rate is for predicting a step: it needs --threads, without --roofline");
    const auto device = open_device(options.run);
    if (options.run.passes == "all" && !device->target().cannot_compile.empty())
        fmt::print("without fused kernels: {}\n", device->target().cannot_compile);
    if (options.difference.empty() && options.roofline) return run_roofline(options, *device);
    if (!options.difference.empty()) return print_difference(options, *device);
    if (!options.trace.empty()) throw UserError("--trace shows times: it needs --roofline");
    const Policy policy = policy_for(options.run, device->target());
    const Explanation explanation = explain_policy(options.run, policy, *device);
    fmt::print("{}", explain_table(explanation, options.nodes ? Detail::nodes : Detail::kinds));
    print_what_would_fit(options, policy, explanation.memory, *device);
    write_output(options.html, explain_html(explanation, nullptr, options.command));
    write_output(options.run.json, explain_json(explanation));
}

std::vector<Row> rank_options(RankQuestion& question) {
    return {
        Row("--ranks", &question.ranks,
            "Predict the step on so many ranks, with the best buckets and batch; from measured launches with "
            "--roofline, else from peaks",
            {.type = "N", .shown = "", .check = not_zero}),
        Row("--link", &question.link, "With --ranks: what a rank sends, and receives, in GB a second",
            {.type = "GB/s", .needs = "--ranks"}),
        Row("--latency", &question.latency, "With --ranks: latency of an exchange, in microseconds",
            {.type = "US", .needs = "--ranks"}),
        Row("--on", &question.on,
            "With --ranks: use the published peaks of an accelerator (h100) instead of this machine's",
            {.type = "NAME", .words = accelerator_names(), .needs = "--ranks"}),
        Row("--reduce-dtype", &question.reduce_dtype, "With --ranks: data type of the gradient all-reduce",
            {.words = {"fp32", "bf16"}, .words_are = WordUse::all, .needs = "--ranks"})};
}

std::vector<Row> report_options(ExplainCommand& options) {
    return {
        Row("--diff", &options.difference,
            "Two policies: print only what differs between them (without --passes: after simplify)",
            {.type = "POLICY", .values = 2, .words = policy_option(options.run, PolicyUse::any).is.words}),
        Row("--roofline", &options.roofline,
            "Run some steps; print each kernel's median time, what bounds it, and how close it comes"),
        html_option(options.html, "Write it as a page, with the roofline if --roofline is given"),
        trace_option(options.trace, "With --roofline: write the step for chrome://tracing or Perfetto"),
        quiet_option(options.run.quiet),
        Row("--memory", &options.memory,
            "Memory to fit into, in GB; if the step takes more, what would need less is printed (default: "
            "what is available)",
            {.type = "GB", .range = {0, "0 GB (what is available) or more"}}),
        Row("--nodes", &options.nodes, "Print a line for each node rather than for each kind")};
}

}  // namespace

void add_explain_command(CLI::App& app, const std::string& typed) {
    const auto options = std::make_shared<ExplainCommand>();
    options->command = typed;
    options->run.model = "gpt2-124m";
    options->run.batch = 4;
    Command& command =
        Command::in(app, "explain", "Print what each operation is stored, multiplied and summed in, and why");
    RunOptions& run_options = options->run;
    add_model_options(command, run_options);
    command.add("Text", {documents_option(run_options)});
    command.add(
        "Model",
        {from_option(run_options,
                     "Whose model: a checkpoint, or model.safetensors and config.json as published")});
    command.add("Formats and passes",
                {policy_option(run_options, PolicyUse::any), emulate_option(run_options),
                 passes_option(run_options), recompute_option(run_options)});
    add_lora_options(command, run_options.lora);
    add_machine_options(command, run_options);
    command.add("Machine", {Row("--for", &options->card,
                                fmt::format("With --roofline: the analytical roofline of this GPU ({}); "
                                            "nothing runs, and no GPU is needed",
                                            fmt::join(accelerator_names(), ", ")),
                                {.type = "GPU", .words = accelerator_names()}),
                            Row("--memory-rate", &options->threads.memory_rate,
                                "With --threads: highest copy rate of all threads together, reads and writes "
                                "counted (default: measured here)",
                                {.type = "GB/s", .needs = "--threads"})});
    command.add("Reports", report_options(*options));
    command.add("Ranks", rank_options(options->ranks));
    command.describe(
        "--threads",

        "Predict the step on 1, 2, 4 ... N threads, and which launches do not scale; with --roofline, "
        "--ranks or --diff: threads to use (default: all that may be)");
    command.does([options, &command] {
        command.require_company();
        take_model_of_files(command, options->run);
        // Fusion differs from policy to policy; an operation's formats do not.
        if (!options->difference.empty() && !command.is_given("--passes")) options->run.passes = "simplify";
        run(*options);
    });
}

}  // namespace mantissa::cli
