// `mantissa train`: trains a model and prints a line a step.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <ranges>

#include "cli/commands.h"
#include "cli/interrupted.h"
#include "cli/numa.h"
#include "cli/output_file.h"
#include "cli/print_error.h"
#include "cli/progress_line.h"
#include "cli/train_input.h"
#include "cli/train_log.h"
#include "cli/train_options.h"
#include "cli/train_ranks.h"
#include "cli/train_validations.h"
#include "cli/train_views.h"
#include "cli/trained_before.h"
#include "mantissa/base/atomic_file.h"
#include "mantissa/base/count_text.h"
#include "mantissa/base/error.h"
#include "mantissa/base/lock_file.h"
#include "mantissa/base/system_memory.h"
#include "mantissa/nn/lora.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/passes/operand_blocks.h"
#include "mantissa/ranks/share_cores.h"
#include "mantissa/report/kept_peaks.h"
#include "mantissa/report/memory_fit.h"
#include "mantissa/report/plan_text.h"
#include "mantissa/report/quantities.h"
#include "mantissa/report/roofline.h"
#include "mantissa/runtime/non_finite.h"
#include "mantissa/runtime/underflow.h"
#include "mantissa/train/agreement.h"
#include "mantissa/train/diagnosis.h"
#include "mantissa/train/training_checkpoint.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::cli {

namespace {

/// Set by an interrupt: the step being run is finished, saved if there is a place for it, and the program
/// ends.
volatile std::sig_atomic_t interrupted = 0;

/// The second of the first Ctrl-C, by the clock of the machine.
volatile std::sig_atomic_t interrupted_at = 0;

/// A step may take minutes: a second Ctrl-C ends the program at once. What comes within a second is the first
/// one still, as mpirun and shells may send it twice.
void interrupt(int signal) {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    const auto second = static_cast<std::sig_atomic_t>(now.tv_sec);
    if (signal == SIGINT && interrupted == SIGINT && second - interrupted_at > 1) {
        std::signal(SIGINT, SIG_DFL);
        std::raise(SIGINT);
    }
    if (interrupted != SIGINT) interrupted_at = second;
    interrupted = signal;
}

void listen_to_signals() {
    std::signal(SIGINT, interrupt);
    std::signal(SIGTERM, interrupt);
    // A terminal that is closed, unless nohup said not to mind.
    if (std::signal(SIGHUP, interrupt) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
    // Nobody reads the output any more: writing then fails, and what was trained is saved first.
    std::signal(SIGPIPE, SIG_IGN);
}

/// The page's data that a checkpoint keeps, so that the page goes on.
constexpr const char* curves_name = "curves.json";

/// One run of the command, from its header to its last line.
class Run {
  public:
    Run(const TrainOptions& options, TrainRanks& ranks)
        : options_(options),
          ranks_(ranks),
          schedule_(schedule_of(options)),
          device_(open_device(options.run, ranks.get())),
          policy_(policy_for(options.run, device_->target())),
          settings_(trainer_of(options, device_->target(), policy_, ranks.get())),
          input_(open_train_input(options, settings_, reads_ahead() ? 2 : 1)),
          model_(input_->model()),
          peaks_(*device_, peaks_file()) {
        if (options.sample_every > 0) plan_samples();
        TrainingPlan plan(*device_, model_, settings_);
        if (chooses_what_fits() && plan.memory().total() > device_->free_memory()) {
            chosen_ = first_that_fits(plan, device_->free_memory(), open_settings());
            if (chosen_) return;
        }
        dump(plan);
        const std::string header = header_of(plan);
        if (options.plan) {
            show_plan(plan, header);
            return;
        }
        if (!options.checkpoint.empty() && ranks.is_first()) {
            require_room_for_checkpoint(options.checkpoint, plan);
            checkpoint_lock_.emplace(AtomicDirectory::lock_of(options.checkpoint), options.checkpoint);
        }
        if (sampler_ && !plan.pipeline().distribution.sharded.empty())
            throw UserError(
                fmt::format("--sample-every: samples are drawn from all parameters in FP32, of which ranks "
                            "under {} have parts; give --states whole",
                            policy_.name));
        trainer_ = std::make_unique<Trainer>(std::move(plan));
        input_->prepare(*trainer_);
        const bool keeps_lowest = options.keep_best || options.patience > 0 || !options.views.html.empty();
        validations_.emplace(options, policy_,
                             keeps_lowest && options.validate_every > 0 ? input_->judged() : "");
        if (sampler_) sampler_->allocate(trainer_->state());
        // All that can be refused is read before anything is printed as if it worked.
        std::string begun;
        std::optional<Resumed> resumed;
        if (!options.resume.empty() && settings_.lora && !options.run.from.empty())
            input_->begin_with_files(trainer_->state());
        if (!options.resume.empty())
            input_->require_fit(
                resumed.emplace(resume_training(options.resume, *trainer_, record(), options.changes)));
        else if (!options.run.from.empty())
            begun = begin_with_published_weights();
        fmt::print("{}{}", header, begun);
        std::fflush(stdout);
        if (resumed) go_on_from(*resumed);
        if (Ranks* const all = ranks_.get()) require_alike(*all, facts());
    }

    /// Makes the settings that were chosen so that the step fits those of the options, where it does not and
    /// some are open; another run is to be made of them then. One line says which.
    bool changes(TrainOptions& options) const {
        if (!chosen_) return false;
        std::string said;
        const auto change = [&](const char* option, auto& field, auto value, const std::string& text) {
            if (field == value) return;
            field = std::move(value);
            options.typed[option] = {text};
            options.given.insert(option);
            said += fmt::format(" {} {}", option, text);
        };
        const std::string trunk =
            has_codes(chosen_->lora->trunk) ? std::string(name_of(chosen_->lora->trunk)) : "";
        const std::vector<std::string> again(chosen_->recompute.begin(), chosen_->recompute.end());
        change("--trunk", options.run.lora.trunk, trunk, trunk);
        change("--recompute", options.run.recompute, again, fmt::format("{}", fmt::join(again, ",")));
        change("--batch", options.run.batch, chosen_->batch, std::to_string(chosen_->batch));
        change("--accumulate", options.accumulate, chosen_->accumulate, std::to_string(chosen_->accumulate));
        fmt::print("chosen, as the first that fits into {:.2f} GB:{}\n",
                   static_cast<double>(device_->free_memory()) / 1e9, said);
        return true;
    }

    void run() {
        if (options_.plan) return;
        say_what_is_kept();
        if (!options_.checkpoint.empty()) trained_on_ = input_->trained_on();
        if (trained_on_ && trained_before_) trained_on_->add(*trained_before_);
        if (!options_.log.empty()) log_.open(options_.log, first_step_);
        views_.begin(*trainer_, {.data = input_->description(),
                                 .example = input_->example(),
                                 .judged = validations_->judged(),
                                 .steps = options_.run.steps,
                                 .kept = curves_});
        listen_to_signals();
        make_steps();
        progress_.clear();
        if (!options_.checkpoint.empty() && saved_at_ != trainer_->steps_done()) save();
        if (!options_.run.lora.merge.empty() && ranks_.is_first()) save_merged_to(options_.run.lora.merge);
        or_give_up([&] { views_.end(); });
        print_summary();
        if (options_.profile)
            fmt::print("the last step:\n{}", profile_table(trainer_->plan().step(), profile_));
        if (peaks_.peaks().fastest() > peak_at_start_) fmt::print("MFU at the end of {}\n", peaks_.text());
        fmt::print("memory at most: {:.1f} MB resident\n", megabytes(peak_resident_memory()));
        std::fflush(stdout);
        write_output(options_.run.json, log_.json(peak_resident_memory()));
        if (gave_up())
            throw UserError(
                fmt::format("stopped after {} not finite, with the "
                            "parameters as before them; in the last, {}; {}",
                            bad_in_a_row_ == 1 ? "a step that was"
                                               : fmt::format("{} steps in a row that were", bad_in_a_row_),
                            non_finite_, advice_));
        if (interrupted != 0)
            throw Interrupted(interrupted,
                              fmt::format("interrupted after step {}", trainer_->steps_done() - 1));
        if (const std::string failure = validations_->failure(); !failure.empty()) lost_.push_back(failure);
        if (!lost_.empty()) throw UserError(fmt::format("{}", fmt::join(lost_, "; ")));
    }

  private:
    /// Whether settings of adapters' training that nobody gave are those that fit: a run that is resumed has
    /// its own, and ranks would have to agree.
    bool chooses_what_fits() const { return settings_.lora && !ranks_.get() && options_.resume.empty(); }

    OpenSettings open_settings() const {
        const auto is_open = [&](const char* option) { return !options_.given.contains(option); };
        return {.trunk = is_open("--trunk"),
                .batch = is_open("--batch") && is_open("--accumulate"),
                .recompute = is_open("--recompute")};
    }

    /// Facts that every rank must have, too.
    RankFacts facts() const {
        RankFacts all = facts_of(trainer_->plan());
        const RunRecord followed = record();
        all.insert(all.end(), followed.inputs.begin(), followed.inputs.end());
        all.emplace_back("steps", fmt::format("{} to {}", trainer_->steps_done(), options_.run.steps));
        return all;
    }

    /// A signal may reach one rank a step later than another.
    bool is_asked_to_end() {
        if (!ranks_.get()) return interrupted != 0;
        // One that comes meanwhile is for the next step: it must not be written over.
        const int agreed = ranks_.first_of(interrupted);
        if (agreed != 0) interrupted = agreed;
        return agreed != 0;
    }

    void dump(const TrainingPlan& plan) const {
        dump_plan(options_.run, "plan.txt", plan.step());
        for (std::size_t level = 0; level < plan.accumulate().size(); ++level)
            dump_plan(options_.run, fmt::format("accumulate-{}-plan.txt", level), *plan.accumulate()[level]);
        dump_refused(options_.run, plan);
        dump_padding(options_.run, plan);
        dump_kernels(options_.run, plan);
    }

    /// A step that the dynamic loss scale skips on its way to the right scale is no bad step; one at its
    /// floor is.
    bool is_bad(const StepResult& result) const {
        if (result.applied) return false;
        return settings_.loss_scale.kind != LossScaleOptions::Kind::dynamic ||
               trainer_->loss_scale().scale <= settings_.loss_scale.floor;
    }

    bool gave_up() const { return options_.bad_steps > 0 && bad_in_a_row_ >= options_.bad_steps; }

    void plan_samples() {
        const Tokenizer& tokenizer = input_->tokenizer();
        SamplerOptions sampler = options_.sampler;
        sampler.seed = options_.run.seed;
        nn::LanguageModel model = language_model(options_.run);
        model.trained_on = longest_sequence_;
        if (settings_.lora) model = nn::with_adapters(std::move(model), *settings_.lora, policy_.low);
        sampler_.emplace(*device_, model, tokenizer, input_->reading(), sampler,
                         settings_.lora ? policy_ : Policy());
    }

    /// The trained model is saved, whatever went wrong beside it, as where nobody reads what is printed.
    void make_steps() {
        try {
            since_start_ = {};
            progress_.begin(trainer_->steps_done(), options_.run.steps);
            while (trainer_->steps_done() < options_.run.steps && !is_asked_to_end() && !gave_up() &&
                   !validations_->ran_out_of_patience())
                one_step();
        } catch (const InternalError&) {
            throw;  // a defect: who knows what the state is
        } catch (const std::exception&) {
            // Others may be in the middle of a step, or gone, and all save together.
            if (!ranks_.get() && !options_.checkpoint.empty() && saved_at_ != trainer_->steps_done())
                save_or_warn();
            throw;
        }
    }

    /// A step, and what is due after it.
    void one_step() {
        train_step(trainer_->steps_done());
        const std::int64_t done = trainer_->steps_done();
        const auto due = [&](std::int64_t every) { return every > 0 && done % every == 0; };
        if (ranks_.get() && due(options_.compare_every))
            require_same_states(*ranks_.get(), trainer_->state(), done - 1);
        if (due(options_.validate_every)) validate_model();  // on each rank: none waits for another
        if (due(options_.sample_every)) show_sample();
        or_give_up([&] { log_.end_step(); });
        or_give_up([&] { views_.end_step(); });
        if (due(options_.save_every) && done < options_.run.steps) save_or_warn();
        progress_.made(done);
    }

    void show_sample() {
        const AveragedWeights averaged(trainer_->state());
        const std::string text = sampler_->sample();
        progress_.clear();
        log_.sample(text);
        views_.sample(text);
    }

    /// The step that would be trained, of which nothing is allocated; and where it does not fit, what would.
    void show_plan(const TrainingPlan& plan, const std::string& header) const {
        fmt::print("{}{}", header, plan_text(plan, peaks_.peaks()));
        const std::int64_t available = device_->free_memory(), needed = plan.memory().total();
        fmt::print("it {}: {:.2f} GB of {:.2f} GB that are available\n",
                   needed <= available ? "fits" : "does not fit", static_cast<double>(needed) / 1e9,
                   static_cast<double>(available) / 1e9);
        if (chooses_what_fits() && needed <= available)
            fmt::print(
                "trunk {}, batch {}, recompute {}; what is not given changes where a step does not fit\n",
                has_codes(settings_.lora->trunk) ? name_of(settings_.lora->trunk)
                                                 : name_of(policy_.low.value_or(DType::f32)),
                settings_.batch,
                settings_.recompute.empty() ? "nothing"
                                            : fmt::format("{}", fmt::join(settings_.recompute, ",")));
        if (needed > available)
            fmt::print("{}", with_options(
                                 fit_table(what_would_fit(plan, available), plan.memory().state, available)));
        std::fflush(stdout);
    }

    /// The plan in some lines, with the memory that is taken before the trainer takes its own.
    std::string header_of(const TrainingPlan& plan) const {
        MemoryUse memory = plan.memory();
        memory.inputs += input_->bytes();
        const std::int64_t samples = sampler_ ? sampler_->bytes() : 0;
        const Target& target = device_->target();
        std::string text = input_->description() + "\n";
        const std::string micro_batches =
            settings_.micro_batches() == 1 ? "" : fmt::format("{} x ", settings_.micro_batches());
        const std::string frozen =
            plan.facts().frozen == 0 ? "" : fmt::format(" ({} frozen)", plan.facts().frozen);
        text +=
            fmt::format("{}, {} parameters{}, {}{} a step, {}{}, {}\n", model_.name, plan.facts().parameters,
                        frozen, micro_batches, nn::batch_text(model_, settings_.batch), policy_.name,
                        options_.run.policy.empty() && policy_.emulate.empty()
                            ? " (chosen for this machine; see --policy)"
                            : "",
                        device_text(target));
        if (settings_.lora)
            text += fmt::format(
                "LoRA: {} of adapters are trained; the model's own matrices are kept once, in {}{}\n",
                count_text(plan.facts().parameters - plan.facts().frozen, "parameter"),
                name_of(policy_.low.value_or(DType::f32)),
                has_codes(settings_.lora->trunk) ? fmt::format(", those of linear layers but the head in {}",
                                                               name_of(settings_.lora->trunk))
                                                 : "");
        if (ranks_.get()) text += fmt::format("{}\n", ranks_.shares());
        if (const std::string nodes = numa_advice(numa_nodes(), usable_cores(), ranks_.on_this_host());
            !nodes.empty())
            text += fmt::format("{}\n", nodes);
        if (!policy_.emulate.empty())
            text += fmt::format(
                "operands of contractions are rounded to {} and multiplied in FP32: its numbers, not its "
                "speed\n",
                policy_.emulate);
        text += fmt::format(
            "memory planned: {:.1f} MB = {:.1f} state + {:.1f} activations and gradients + {:.1f} inputs{}{} "
            "+ "
            "{:.1f} the program and its text; step built in {:.0f} ms\n",
            megabytes(memory.total() + samples + resident_memory()), megabytes(memory.state),
            megabytes(memory.arena), megabytes(memory.inputs),
            samples == 0 ? "" : fmt::format(" + {:.1f} samples", megabytes(samples)),
            memory.exchange == 0 ? "" : fmt::format(" + {:.1f} exchange", megabytes(memory.exchange)),
            megabytes(resident_memory()), plan.build_milliseconds());
        text += fmt::format("MFU of {}\n", peaks_.text());
        if (options_.run.passes == "all" && !target.cannot_compile.empty())
            text += fmt::format("without fused kernels: {}\n", target.cannot_compile);
        if (options_.run.pass_times) text += pass_table(plan.pass_times());
        return text;
    }

    std::string begin_with_published_weights() {
        begun_from_ = options_.run.from;
        trained_before_ = saved_trained_on(begun_from_);
        const std::string begun = input_->begin_with_files(trainer_->state());
        begin_with_adapters(options_.run, trainer_->state());
        return begun + "\n";
    }

    /// A run whose result is lost, or that writes over another's, is said to be one before it begins.
    void say_what_is_kept() {
        namespace fs = std::filesystem;
        std::error_code ignored;
        const fs::path state = fs::path(options_.checkpoint) / "state.json";
        if (!options_.checkpoint.empty() && fs::exists(state, ignored) && saved_at_ < 0 &&
            !begun_from_previous())
            print_error(fmt::format(
                "mantissa: {} holds a checkpoint of another run; the first save moves it to {}, the second "
                "replaces it there\n",
                options_.checkpoint, AtomicDirectory::previous_of(options_.checkpoint).string()));
        if (const std::string kept = validations_->say_what_is_kept(); !kept.empty() && ranks_.is_first())
            print_error(fmt::format("mantissa: {}\n", kept));
        if (options_.validate_every > 0) {
            warn_of_validation_that_is_trained_on();
            warn_of_what_was_trained_on(options_, *input_, begun_from_, trained_before_);
        }
        if (options_.run.quiet) return;
        if (first_step_ == 0 && holds_lines(options_.log))
            print_error(fmt::format("mantissa: {} holds the lines of another run, which are now in {}\n",
                                    options_.log, AtomicDirectory::previous_of(options_.log).string()));
        if (options_.checkpoint.empty())
            print_error("mantissa: what is trained will not be saved; --checkpoint DIR saves it\n");
        say_what_does_nothing();
    }

    void say_what_does_nothing() const {
        for (const char* option : {"--states", "--bucket", "--rank-timeout", "--compare-every"})
            if (!ranks_.get() && options_.given.contains(option))
                print_error(fmt::format(
                    "mantissa: {} does nothing here: it is for ranks, and this process is alone\n", option));
        if (const auto& files = options_.run.from_files;
            options_.resume.empty() && files && files->dropout_of_files > 0 && !options_.run.sizes.dropout)
            print_error(fmt::format(
                "mantissa: the config.json of {} tells of dropout {:g}, and this run has none; {}\n",
                options_.run.from, files->dropout_of_files,
                files->can_drop ? fmt::format("--dropout {:g} drops as much", files->dropout_of_files)
                                : "models of this family are trained without"));
        for (const auto& [option, every] : {std::pair{"--save-every", options_.save_every},
                                            {"--validate-every", options_.validate_every},
                                            {"--sample-every", options_.sample_every}})
            if (options_.given.contains(option) && every > 0 &&
                options_.run.steps / every == first_step_ / every)
                print_error(fmt::format("mantissa: {} {} does nothing here: the run ends at step {}\n",
                                        option, every, options_.run.steps));
        for (const PassRefusal& refusal : trainer_->plan().refused())
            if (refusal.pass == "recompute")
                print_error(fmt::format("mantissa: --recompute {}: {}\n", refusal.op, refusal.reason));
        say_what_stays_bf16();
        say_what_is_not_trained();
        if (options_.takes_low_rate)
            print_error(
                fmt::format("mantissa: the learning rate is {:g}, since {}the weights of {} are trained; "
                            "--learning-rate gives another\n",
                            options_.run.learning_rate, options_.run.lora.given() ? "adapters beside " : "",
                            options_.run.from));
        if (options_.warmup > options_.run.steps)
            print_error(
                fmt::format("mantissa: --warmup {}: the run ends at step {}, before the learning rate has "
                            "risen to {:g}\n",
                            options_.warmup, options_.run.steps, options_.run.learning_rate));
    }

    /// Each reason for which products keep sixteen bits under a shorter policy, with how many places have it.
    void say_what_stays_bf16() const {
        if (!policy_.blocks) return;
        std::map<std::string, std::int64_t> places;
        for (const PassRefusal& refusal : trainer_->plan().refused())
            if (refusal.pass == "round_operands") ++places[refusal.reason];
        print_error(fmt::format("mantissa: policy {}: layers multiply {}; FP32 sums\n", policy_.name,
                                policy_.blocks->text()));
        for (const auto& [reason, count] : places)
            print_error(fmt::format("mantissa: policy {}: {} ({})\n", policy_.name, reason,
                                    count_text(count, "place")));
    }

    void say_what_is_not_trained() const {
        if (longest_sequence_ == 0) return;
        nn::LanguageModel model = language_model(options_.run);
        model.trained_on = longest_sequence_;
        if (model.used_context() == model.context) return;
        print_error(fmt::format(
            "mantissa: no sequence is longer than {0} tokens, of a context of {1}: generate stays "
            "within {0}; a longer --sequence trains more\n",
            longest_sequence_, model.context));
    }

    /// The longest sequence of this run and of those that it goes on from; 0: not known, or no text.
    std::int64_t longest_sequence() const {
        if (!options_.images.directory.empty()) return 0;
        const std::int64_t own = model_.units_per_example;
        const std::int64_t before = !options_.resume.empty()  ? saved_longest_sequence(options_.resume)
                                    : options_.run.from_files ? options_.run.from_files->trained_on
                                                              : own;
        return before == 0 ? 0 : std::max(own, before);
    }

    void warn_of_validation_that_is_trained_on() const {
        const auto& trained = options_.run.tokens.empty() ? options_.run.text : options_.run.tokens;
        for (const std::string& file : options_.validation)
            for (const std::string& text : trained)
                if (file != "-" && text != "-" && (lies_in(file, text) || lies_in(text, file)))
                    return print_error(
                        fmt::format("mantissa: warning: --validation {}: {} is trained on, too, so the "
                                    "validation loss does not tell of new text\n",
                                    file, text == file ? "it" : text));
    }

    void print_summary() const {
        if (const std::string remark = input_->remark(); !remark.empty()) fmt::print("{}\n", remark);
        fmt::print("{}", validations_->summary());
        const double seconds = since_start_.seconds();
        const std::int64_t made = trainer_->steps_done() - first_step_;
        if (made == 0) return;
        const auto steps = static_cast<double>(made);
        fmt::print("{} in {}, {:.0f} {} a second with all that was done between{}\n",
                   count_text(made, "step"), duration_text(seconds),
                   steps * static_cast<double>(trainer_->plan().units_per_step()) / seconds, model_.unit,
                   options_.checkpoint.empty() ? "; not saved" : "");
        if (bad_ > 0 && !gave_up())  // with --quiet no line of a step has said so
            fmt::print("{} of them not finite, and skipped; in the last, {}\n", bad_, non_finite_);
        if (Ranks* const all = ranks_.get()) {
            const Ranks::Time time = all->take_time();
            fmt::print(
                "gradients travelled {:.1f} ms a step, of which {:.0f} % behind the backward pass\n",
                1000 * time.travelled / steps,
                time.travelled > 0 ? 100 * std::clamp(1 - time.waited / time.travelled, 0.0, 1.0) : 0.0);
        }
    }

    /// Goes on as the run that was saved, once its states are the trainer's.
    void go_on_from(const Resumed& resumed) {
        if (!resumed.warning.empty()) print_error(fmt::format("mantissa: warning: {}\n", resumed.warning));
        begun_from_ = resumed.directory;
        trained_before_ = saved_trained_on(begun_from_);
        if (const auto curves = resumed.texts.find(curves_name); curves != resumed.texts.end())
            curves_ = curves->second;
        if (const std::string anew = validations_->go_on_from(resumed.validations); !anew.empty())
            print_error(fmt::format("mantissa: warning: {}\n", anew));
        if (const std::string began = input_->go_on_from(resumed.place); !began.empty())
            print_error(fmt::format("mantissa: {}\n", began));
        const std::int64_t done = trainer_->steps_done();
        fmt::print("resumed from {} after step {}\n", options_.resume, done - 1);
        if (!options_.not_continued.empty() && !options_.run.quiet)
            print_error(fmt::format("mantissa: not continued: {}\n", options_.not_continued));
        if (done >= options_.run.steps)
            print_error(
                fmt::format("mantissa: warning: {} has made {}; --steps {} counts from the first, so there "
                            "is none to make\n",
                            options_.resume, count_text(done, "step"), options_.run.steps));
        std::error_code ignored;
        if (std::filesystem::equivalent(begun_from_, options_.checkpoint, ignored)) saved_at_ = done;
        first_step_ = done;
    }

    /// Facts that the run follows from besides the trainer's options.
    RunRecord record() const {
        RunRecord record;
        record.inputs["learning_rate"] = schedule_.text();
        input_->add_to(record);
        record.place = input_->place_at(trainer_->steps_done());
        record.longest_sequence = longest_sequence_;
        record.validations = validations_->progress();
        record.options = options_.typed;
        record.base_model = options_.run.from;
        return record;
    }

    /// Whether the next step's batch is read, and brought to the device, while a step works.
    bool reads_ahead() const { return device_->target().overlaps_copies; }

    /// Unreadable data is an error of the step that needs it.
    void read_ahead(std::int64_t index) {
        if (!reads_ahead() || index >= options_.run.steps) return;
        try {
            next_ = {index, input_->batch(index)};
            trainer_->bring(next_->batch);
        } catch (const std::exception&) {
            next_.reset();  // it is read again then, and fails again
        }
    }

    Batch batch_of(std::int64_t index) {
        if (next_ && next_->step == index) return next_->batch;
        return input_->batch(index);
    }

    void train_step(std::int64_t index) {
        const Batch batch = batch_of(index);
        if (index == first_step_ && policy_.needs_loss_scale()) warn_of_underflow(batch);
        const double rate = schedule_.at(index);
        StepRecord record;
        record.step = index;
        record.learning_rate = rate;
        record.result = views_.step(*trainer_, batch, rate, options_.profile ? &profile_ : nullptr,
                                    [&] { read_ahead(index + 1); });
        bad_in_a_row_ = is_bad(record.result) ? bad_in_a_row_ + 1 : 0;
        bad_ += is_bad(record.result) ? 1 : 0;
        record.loss_scale = trainer_->loss_scale();
        if (is_bad(record.result)) {
            const auto found = trainer_->first_non_finite(batch, rate);
            if (index == first_step_) begins_broken_ = found && found->source == NonFinite::Source::state;
            non_finite_ = ranks_.first_of(found ? found->text() : "");
            if (non_finite_.empty()) non_finite_ = "nothing was found when it was run again";
            record.non_finite = non_finite_;
            advice_ = advice_for(record);
        }
        const TrainingPlan& plan = trainer_->plan();
        record.units_per_second = static_cast<double>(plan.units_per_step()) / record.result.seconds;
        record.mfu = peaks_.share_of_fastest(plan.flops_per_step() / record.result.seconds);
        const bool last = trainer_->steps_done() == options_.run.steps;
        const bool due = index % options_.print_every == 0 || last || !record.result.applied;
        if (due && !options_.run.quiet) progress_.clear();
        log_.step(record, due && !options_.run.quiet ? TrainLog::Print::yes : TrainLog::Print::no);
        views_.made(record);
        remark_on(record.result);
    }

    /// Advice against a step that was not finite.
    std::string advice_for(const StepRecord& record) const {
        if (const std::string& files = options_.resume.empty() ? options_.run.from : options_.resume;
            begins_broken_ && !files.empty())
            return fmt::format("it was so in {}, which is damaged or of a training that broke down", files);
        const bool fixed = settings_.loss_scale.kind == LossScaleOptions::Kind::fixed;
        if (is_fault_of_loss_scale(record.result.loss, record.loss_scale.scale))
            return fmt::format(
                "the loss is finite, and times the loss scale of {:g} the gradients are not: {}",
                record.loss_scale.scale,
                fixed ? "a smaller --loss-scale, or --loss-scale dynamic, may help"
                      : "a smaller --loss-scale-floor may help");
        const char* const range =
            policy_.needs_loss_scale() ? ", and so may --policy bf16, which has the range of FP32" : "";
        return fmt::format("a lower --learning-rate or a {} may help{}",
                           options_.clip.value_or(0) > 0 ? "smaller --clip" : "--clip", range);
    }

    /// Once: that the loss is several times its first, which no good training comes to.
    void remark_on(const StepResult& result) {
        watch_.add(static_cast<double>(result.loss));
        const std::optional<double> climbed = watch_.climbed_to();
        if (remarked_ || !climbed) return;
        remarked_ = true;
        progress_.clear();
        print_error(fmt::format(
            "mantissa: warning: step {}: the mean of the last ten losses is {:.4g}, {:.1f} times the first, "
            "{:.4g}: this does not train; a lower --learning-rate may help\n",
            trainer_->steps_done() - 1, *climbed, *climbed / watch_.first(), watch_.first()));
    }

    /// Before the first step, where nothing adapts the loss scale.
    void warn_of_underflow(const Batch& batch) {
        if (settings_.loss_scale.kind == LossScaleOptions::Kind::dynamic) return;
        const Underflow underflow = trainer_->underflow(batch);
        if (underflow.share() < 0.001) return;
        print_error(fmt::format(
            "mantissa: warning: at loss scale {:g}, {:.1f} % of the gradients' elements become zero "
            "when they are cast to f16; --loss-scale dynamic, or a larger number, keeps them\n",
            trainer_->loss_scale().scale, 100 * underflow.share()));
    }

    void validate_model() {
        Validation result;
        {
            const AveragedWeights averaged(trainer_->state());
            result = input_->validate(*trainer_, [&](std::uint64_t done, std::uint64_t of) {
                progress_.within("validating", done, of);
            });
        }
        progress_.clear();
        log_.validation(result);
        views_.validation(result);
        const bool is_best = validations_->add(result, trainer_->steps_done());
        if (const std::string remark = validations_->take_remark(); !remark.empty() && ranks_.is_first())
            print_error(fmt::format("mantissa: warning: {}\n", remark));
        if (is_best && options_.keep_best) keep_best();
    }

    /// In the place of the best before it, which need not be kept where it is this run's.
    void keep_best() {
        const std::string place = place_of_best(options_.checkpoint);
        or_warn([&] {
            save_to(place);
            std::error_code ignored;
            if (validations_->replaced_own_best() && ranks_.is_first())
                std::filesystem::remove_all(AtomicDirectory::previous_of(place), ignored);
        });
    }

    /// Whether the first save would replace what the run began from, and keep what the run left behind.
    bool begun_from_previous() const {
        std::error_code ignored;
        return !options_.checkpoint.empty() &&
               std::filesystem::equivalent(begun_from_, AtomicDirectory::previous_of(options_.checkpoint),
                                           ignored);
    }

    /// Keeps what the first save would replace. Where that fails, returns why.
    std::string set_aside() {
        if (!ranks_.is_first() || !begun_from_previous()) return "";
        try {
            const std::filesystem::path aside = AtomicDirectory::set_aside(options_.checkpoint);
            if (!aside.empty() && !options_.run.quiet)
                print_error(
                    fmt::format("mantissa: {} as it was is now {}; the run began from {}, which stays\n",
                                options_.checkpoint, aside.string(), begun_from_.string()));
        } catch (const UserError& error) {
            return error.what();
        }
        begun_from_.clear();
        return "";
    }

    /// All ranks together.
    void save() {
        progress_.clear();
        if (const std::string failed = ranks_.first_of(set_aside()); !failed.empty()) throw UserError(failed);
        save_to(options_.checkpoint);
        saved_at_ = trainer_->steps_done();
    }

    void save_to(const std::string& place) {
        RunRecord saved = record();
        if (const std::string curves = views_.kept(); !curves.empty()) saved.texts[curves_name] = curves;
        saved.trained_on = trained_on_;
        save_training(place, *trainer_, saved);
        fmt::print("saved {} after step {}\n", place, trainer_->steps_done() - 1);
        std::fflush(stdout);
    }

    void save_merged_to(const std::string& place) {
        save_merged(place, *trainer_, record());
        fmt::print("merged {} after step {}\n", place, trainer_->steps_done() - 1);
        std::fflush(stdout);
    }

    /// On the way: what cannot be saved now is not lost while the run goes on.
    void save_or_warn() {
        or_warn([&] { save(); });
    }

    template <class Save>
    void or_warn(Save&& save_it) {
        try {
            save_it();
        } catch (const LostRank&) {
            throw;
        } catch (const UserError& error) {
            if (!ranks_.is_first()) return;
            progress_.clear();
            print_error(fmt::format("mantissa: warning: after step {} nothing was saved: {}\n",
                                    trainer_->steps_done() - 1, error.what()));
        }
    }

    /// A report that cannot be written is named now and at the end; the training is worth more. Standard
    /// output is no file that could be left out.
    template <class Write>
    void or_give_up(Write&& write) {
        try {
            write();
        } catch (const UserError& error) {
            if (options_.log == "-") throw;
            lost_.emplace_back(error.what());
            progress_.clear();
            print_error(fmt::format("mantissa: warning: {}; the run goes on without it\n", error.what()));
        }
    }

    const TrainOptions& options_;
    TrainRanks& ranks_;
    std::optional<LockFile> checkpoint_lock_;
    LearningRateSchedule schedule_;
    std::unique_ptr<Device> device_;
    Policy policy_;
    TrainerOptions settings_;
    std::unique_ptr<TrainInput> input_;
    const nn::Model& model_;
    const std::int64_t longest_sequence_ = longest_sequence();
    KeptPeaks peaks_;
    const double peak_at_start_ = peaks_.peaks().fastest();
    std::optional<TrainerOptions> chosen_;  ///< where what was given and the defaults do not fit
    std::unique_ptr<Trainer> trainer_;
    struct NextBatch {
        std::int64_t step;
        Batch batch;
    };
    std::optional<NextBatch> next_;  ///< that was read ahead
    Profile profile_;
    StepProgress progress_{options_.run.quiet};
    Stopwatch since_start_;
    std::int64_t first_step_ = 0;
    std::int64_t saved_at_ = -1;
    std::optional<TrainValidations> validations_;
    std::string curves_;                ///< of the page, that the checkpoint kept; empty: none
    std::filesystem::path begun_from_;  ///< the checkpoint, until the first save
    /// The data of the run that this one began from; those that its own checkpoints tell of.
    std::optional<TrainedOn> trained_before_, trained_on_;
    std::optional<TrainSampler> sampler_;
    std::int64_t bad_in_a_row_ = 0, bad_ = 0;
    std::string non_finite_, advice_;  ///< of the last bad step
    std::vector<std::string> lost_;    ///< reports that could not be written, and why
    LossWatch watch_;
    bool begins_broken_ = false;  ///< the first step came upon a state that is not finite
    bool remarked_ = false;       ///< that the loss climbs
    TrainLog log_{model_, std::string(policy_.name),
                  options_.run.json.empty() ? TrainLog::Keep::nothing : TrainLog::Keep::steps};
    TrainViews views_{options_.views};
};

}  // namespace

std::unique_ptr<TrainInput> open_train_input(const TrainOptions& options, const TrainerOptions& settings,
                                             int kept) {
    return options.images.directory.empty() ? open_text_input(options, settings, kept)
                                            : open_image_input(options, settings, kept);
}

void add_train_command(CLI::App& app, const std::string& typed) {
    const auto options = std::make_shared<TrainOptions>();
    options->views.command = typed;
    options->run.steps = 100;
    Command& command =
        Command::in(app, "train", "Train a model on text or images, and print a line for each step");
    add_train_options(command, *options);
    command.does([options, &command] {
        TrainRanks ranks(options->rank_timeout);
        ranks.run([&] {
            complete_options(command, *options, ranks.size());
            validate_loop(*options);
            options->run.threads = ranks.share_cores(options->run.threads);
            leave_out_histograms(*options, ranks);
            if (!ranks.is_first()) leave_to_the_first(*options);
            auto run = std::make_unique<Run>(*options, ranks);
            if (run->changes(*options)) {
                run.reset();
                run = std::make_unique<Run>(*options, ranks);
            }
            run->run();
        });
    });
}

}  // namespace mantissa::cli
