#include "cli/train_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "cli/numa.h"
#include "cli/output_file.h"
#include "cli/print_error.h"
#include "mantissa/base/printable.h"
#include "mantissa/base/system_memory.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/passes/operand_blocks.h"
#include "mantissa/ranks/launched.h"
#include "mantissa/report/quantities.h"
#include "mantissa/report/step_estimate.h"
#include "mantissa/train/memory_fit.h"

namespace mantissa::cli {

namespace {

/// The format of kept matrices, and the format of their codes; empty: none.
std::string_view stored_in(const TrainerOptions& settings) {
    return name_of(settings.policy.low.value_or(DType::f32));
}
std::string_view trunk_of(const TrainerOptions& settings) {
    return has_codes(settings.lora->trunk) ? name_of(settings.lora->trunk) : "";
}

/// Model, policy and machine.
std::string model_line(const PlannedRun& run) {
    const TrainerOptions& settings = run.plan.options();
    const nn::ModelFacts& facts = run.plan.facts();
    const bool is_chosen = run.options.run.policy.empty() && settings.policy.emulate.empty();
    std::string text = fmt::format(
        "{}, {} parameters{}, {}{} a step, {}{}, {}\n", run.input.model().name, facts.parameters,
        facts.frozen == 0 ? "" : fmt::format(" ({} frozen)", facts.frozen),
        settings.micro_batches() == 1 ? "" : fmt::format("{} x ", settings.micro_batches()),
        nn::batch_text(run.input.model(), settings.batch), settings.policy.name,
        is_chosen ? " (chosen for this machine; see --policy)" : "", device_text(run.plan.device().target()));
    if (!settings.lora) return text;
    const std::string_view trunk = trunk_of(settings);
    return text + fmt::format(
                      "LoRA: {} of adapters are trained; the model's own matrices are kept once, in {}{}\n",
                      count_text(facts.parameters - facts.frozen, "parameter"), stored_in(settings),
                      trunk.empty() ? "" : fmt::format(", those of linear layers but the head in {}", trunk));
}

/// Prints each reason why products keep sixteen bits under a shorter policy, with the number of places.
void say_what_stays_bf16(const TrainingPlan& plan) {
    const Policy& policy = plan.options().policy;
    if (!policy.blocks) return;
    std::map<std::string, std::int64_t> places;
    for (const PassRefusal& refusal : plan.refused())
        if (refusal.pass == "round_operands") ++places[refusal.reason];
    say("policy {}: layers multiply {}, as {}; FP32 sums", policy.name, policy.blocks->text(),
        plan.step().nodes_of("scaled_matmul").empty() ? "bf16" : "fp8");
    for (const auto& [reason, count] : places)
        say("policy {}: {} ({})", policy.name, reason, count_text(count, "place"));
}

void say_what_is_not_trained(const RunOptions& run, std::int64_t longest_sequence) {
    if (longest_sequence == 0) return;
    nn::LanguageModel model = language_model(run);
    model.trained_on = longest_sequence;
    if (model.used_context() == model.context) return;
    say("no sequence is longer than {0} tokens, of a context of {1}: generate stays within {0}; a longer "
        "--sequence trains more",
        longest_sequence, model.context);
}

}  // namespace

std::string header_of(const PlannedRun& run, std::int64_t samples) {
    const Target& target = run.plan.device().target();
    const Policy& policy = run.plan.options().policy;
    MemoryUse memory = run.plan.memory();
    memory.inputs += run.input.bytes();
    const std::int64_t resident = resident_memory();
    std::string text = run.input.description() + "\n" + model_line(run);
    if (run.ranks.get()) text += run.ranks.shares() + "\n";
    if (const std::string nodes = numa_advice(numa_nodes(), usable_cores(), run.ranks.on_this_host());
        !nodes.empty())
        text += nodes + "\n";
    if (!policy.emulate.empty())
        text += fmt::format(
            "operands of contractions are rounded to {} and multiplied in FP32: its numbers, not its speed\n",
            policy.emulate);
    text += fmt::format(
        "memory planned: {:.1f} MB = {:.1f} state + {:.1f} activations and gradients + {:.1f} inputs{}{} + "
        "{:.1f} the program and its text; step built in {:.0f} ms\n",
        megabytes(memory.total() + samples + resident), megabytes(memory.state), megabytes(memory.arena),
        megabytes(memory.inputs), samples == 0 ? "" : fmt::format(" + {:.1f} samples", megabytes(samples)),
        memory.exchange == 0 ? "" : fmt::format(" + {:.1f} exchange", megabytes(memory.exchange)),
        megabytes(resident), run.plan.build_milliseconds());
    text += fmt::format("MFU of {}\n", run.peaks.text());
    if (run.options.run.passes == "all" && !target.cannot_compile.empty())
        text += fmt::format("without fused kernels: {}\n", target.cannot_compile);
    return run.options.run.pass_times ? text + pass_table(run.plan.pass_times()) : text;
}

std::string fit_of(const PlannedRun& run) {
    const TrainerOptions& settings = run.plan.options();
    const std::int64_t available = run.plan.device().free_memory(), needed = run.plan.memory().total();
    const bool fits = needed <= available;
    std::string text = fmt::format("{}it {}: {:.2f} GB of {:.2f} GB that are available\n",
                                   plan_text(run.plan, run.peaks.peaks()), fits ? "fits" : "does not fit",
                                   static_cast<double>(needed) / 1e9, static_cast<double>(available) / 1e9);
    if (!fits)
        return text + with_options(
                          fit_table(what_would_fit(run.plan, available), run.plan.memory().state, available));
    if (!settings.lora) return text;
    const std::string_view trunk = trunk_of(settings);
    return text +
           fmt::format(
               "trunk {}, batch {}, recompute {}; what is not given changes where a step does not fit\n",
               trunk.empty() ? stored_in(settings) : trunk, settings.batch,
               settings.recompute.empty() ? "nothing"
                                          : fmt::format("{}", fmt::join(settings.recompute, ",")));
}

void say_what_does_nothing(const PlannedRun& run, std::int64_t first_step, std::int64_t longest_sequence) {
    const TrainOptions& options = run.options;
    for (const char* option : {"--states", "--bucket", "--rank-timeout", "--compare-every"})
        if (!run.ranks.get() && options.given.contains(option))
            say("{} does nothing here: it is for ranks, and this process is alone", option);
    if (const auto& files = options.run.from_files;
        options.resume.empty() && files && files->dropout_of_files > 0 && !options.run.sizes.dropout)
        say("the config.json of {} tells of dropout {:g}, and this run has none; {}", options.run.from,
            files->dropout_of_files,
            files->can_drop ? fmt::format("--dropout {:g} drops as much", files->dropout_of_files)
                            : "models of this family are trained without");
    for (const auto& [option, every] : {std::pair{"--save-every", options.save_every},
                                        {"--validate-every", options.validate_every},
                                        {"--sample-every", options.sample_every}})
        if (options.given.contains(option) && every > 0 && options.run.steps / every == first_step / every)
            say("{} {} does nothing here: the run ends at step {}", option, every, options.run.steps);
    for (const PassRefusal& refusal : run.plan.refused())
        if (refusal.pass == "recompute") say("--recompute {}: {}", refusal.op, refusal.reason);
    say_what_stays_bf16(run.plan);
    say_what_is_not_trained(options.run, longest_sequence);
    if (options.takes_low_rate)
        say("the learning rate is {:g}, since {}the weights of {} are trained; --learning-rate gives another",
            options.run.learning_rate, options.run.lora.given() ? "adapters beside " : "", options.run.from);
    if (options.warmup > options.run.steps)
        say("--warmup {}: the run ends at step {}, before the learning rate has risen to {:g}",
            options.warmup, options.run.steps, options.run.learning_rate);
}

namespace {

constexpr const char* not_new = "so the validation loss does not tell of new data";

void warn_of_what_is_trained_on(const TrainOptions& options) {
    for (const std::string& file : options.validation)
        for (const std::string& text : options.run.tokens.empty() ? options.run.text : options.run.tokens)
            if (file != "-" && text != "-" && (lies_in(file, text) || lies_in(text, file)))
                return warn(
                    "--validation {}: {} is trained on, too, so the validation loss does not tell of new "
                    "text",
                    file, text == file ? "it" : text);
}

/// Phrases shared by many texts come to less.
constexpr double least_share = 0.01;

const std::vector<std::string>& values_of(const TypedOptions& options, const char* name) {
    static const std::vector<std::string> none;
    const auto found = options.find(name);
    return found == options.end() ? none : found->second;
}

bool reads_same_files(const TypedOptions& before, const TypedOptions& now) {
    for (const char* name : {"--text", "--tokens", "--chats", "--images"})
        for (const std::string& path : values_of(before, name))
            if (path != "-" && std::ranges::count(values_of(now, name), path) > 0) return true;
    return values_of(before, "--pictures") == values_of(now, "--images") && before.contains("--pictures");
}

bool held_nothing_out(const TypedOptions& saved) {
    const std::vector<std::string>& every = values_of(saved, "--validate-every");
    return every.empty() || every.front() == "0" || saved.contains("--validation");
}

/// Whether a checkpoint that records its split has this one, in present words.
bool held_out_alike(const TypedOptions& saved, const std::string& held_out) {
    const std::vector<std::string>& word = values_of(saved, "--held-out");
    return held_out == (word.empty() ? "last" : word.front());
}

}  // namespace

void warn_of_validation(const TrainOptions& options, const TrainInput& input,
                        const std::filesystem::path& began, const std::optional<TrainedOn>& before) {
    warn_of_what_is_trained_on(options);
    const std::string& name = options.resume.empty() ? options.run.from : options.resume;
    if (before) {
        if (const double share = input.trained_before(*before); share >= least_share)
            warn("about {:.0f} % of what is validated on was trained on by {}, {}", 100 * share, name,
                 not_new);
        return;
    }
    if (began.empty() || !std::filesystem::exists(began / "state.json")) return;
    const TypedOptions saved = saved_options(began);
    const bool resumes = !options.resume.empty();
    if (saved.empty() || !options.validation.empty()) return;
    if (!resumes && !reads_same_files(saved, options.typed)) return;
    if (held_nothing_out(saved))
        warn("{} was trained on all of these files, {}", name, not_new);
    else if (!held_out_alike(saved, options.held_out))
        warn("{} was trained on these files, of which it held out others, {}", name, not_new);
    else if (const std::string split = input.split_of_before(); !split.empty() && resumes)
        say("{} is of an earlier version, which held out {}; this run goes on so, and other files would "
            "change what is held out; a new run holds out by names",
            name, split);
}

}  // namespace mantissa::cli
