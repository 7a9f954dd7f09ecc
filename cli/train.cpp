// `mantissa train`: trains a model and prints a line a step.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <ranges>
#include <utility>

#include "cli/commands.h"
#include "cli/output_file.h"
#include "cli/print_error.h"
#include "cli/progress_line.h"
#include "cli/train_input.h"
#include "cli/train_log.h"
#include "cli/train_options.h"
#include "cli/train_ranks.h"
#include "cli/train_validations.h"
#include "cli/train_views.h"
#include "cli/train_words.h"
#include "mantissa/base/atomic_file.h"
#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/base/system_memory.h"
#include "mantissa/nn/lora.h"
#include "mantissa/report/kept_peaks.h"
#include "mantissa/report/quantities.h"
#include "mantissa/report/roofline.h"
#include "mantissa/train/agreement.h"
#include "mantissa/train/diagnosis.h"
#include "mantissa/train/memory_fit.h"
#include "mantissa/train/training_checkpoint.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::cli {

namespace {

/// Set by an interrupt: the present step is finished, then saved if a checkpoint was named, and the program
/// ends.
volatile std::sig_atomic_t interrupted = 0;

/// The second of the first Ctrl-C, on the monotonic clock.
volatile std::sig_atomic_t interrupted_at = 0;

/// A step may take minutes: a second Ctrl-C ends the program at once. A signal within a second still belongs
/// to the first, as mpirun and shells may send it twice.
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
    // The terminal was closed; ignored under nohup.
    if (std::signal(SIGHUP, interrupt) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
    // A closed output makes writes fail instead; the training is saved first.
    std::signal(SIGPIPE, SIG_IGN);
}

/// The page's data in a checkpoint, with which the page continues.
constexpr const char* curves_name = "curves.json";

/// A run of the command, from its header to its last line.
class Run {
  public:
    Run(const TrainOptions& options, TrainRanks& ranks)
        : options_(options),
          ranks_(ranks),
          schedule_(schedule_of(options)),
          device_(open_device(options.run, ranks.get())),
          policy_(policy_for(options.run, device_->target())),
          settings_(trainer_of(options, device_->target(), policy_, ranks.get())),
          plan_(opened_plan()),
          model_(input_->model()),
          peaks_(*device_, peaks_file()) {
        if (options.sample_every > 0) plan_samples();
    }

    void run() {
        dump_training(options_.run, *plan_);
        const std::string header = header_of(planned(), sampler_ ? sampler_->bytes() : 0);
        if (options_.plan) return fmt::print("{}{}", header, fit_of(planned()));
        begin(header);
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
        end();
    }

  private:
    /// Opens the data and plans the step. With adapters, the step is planned first: its batch may change.
    TrainingPlan opened_plan() {
        std::optional<TrainingPlan> plan;
        if (settings_.lora) {
            plan = plan_that_fits(*device_, model_to_train(options_.run), settings_);
            if (const std::string chosen = choice_text(settings_, *plan); !chosen.empty())
                fmt::print("{}\n", with_options(chosen));
            chosen_ = chosen_settings(settings_, plan->options());
            settings_ = plan->options();
        }
        input_ = open_train_input(options_, settings_, reads_ahead() ? 2 : 1);
        if (!plan) plan.emplace(*device_, input_->model(), settings_);
        return std::move(*plan);
    }

    PlannedRun planned() { return {options_, ranks_, *input_, trainer_ ? trainer_->plan() : *plan_, peaks_}; }

    /// Makes the trainer, with its initial weights. Reads all that can be refused before it prints anything
    /// as if it worked.
    void begin(const std::string& header) {
        if (!options_.checkpoint.empty() && ranks_.is_first()) {
            require_room_for_checkpoint(options_.checkpoint, *plan_);
            checkpoint_lock_.emplace(AtomicDirectory::lock_of(options_.checkpoint), options_.checkpoint);
        }
        if (sampler_ && !plan_->pipeline().distribution.sharded.empty())
            throw UserError(
                fmt::format("--sample-every: samples are drawn from all parameters in FP32, of which ranks "
                            "under {} have parts; give --states whole",
                            policy_.name));
        trainer_ = std::make_unique<Trainer>(std::move(*std::exchange(plan_, {})));
        input_->prepare(*trainer_);
        const bool keeps_lowest = options_.keep_best || options_.patience > 0 || !options_.views.html.empty();
        validations_.emplace(options_, policy_,
                             keeps_lowest && options_.validate_every > 0 ? input_->judged() : "");
        if (sampler_) sampler_->allocate(trainer_->state());
        std::string begun;
        std::optional<Resumed> resumed;
        if (!options_.resume.empty() && settings_.lora && !options_.run.from.empty())
            input_->begin_with_files(trainer_->state());
        if (!options_.resume.empty())
            input_->require_fit(
                resumed.emplace(resume_training(options_.resume, *trainer_, record(), options_.changes)));
        else if (!options_.run.from.empty())
            begun = begin_with_published_weights();
        fmt::print("{}{}", header, begun);
        std::fflush(stdout);
        if (resumed) go_on_from(*resumed);
        if (Ranks* const all = ranks_.get()) require_alike(*all, facts());
    }

    /// Saves, and reports the result.
    void end() {
        progress_.clear();
        if (!options_.checkpoint.empty() && saved_at_ != trainer_->steps_done()) save();
        if (const std::string& merged = options_.run.lora.merge; !merged.empty() && ranks_.is_first()) {
            save_merged(merged, *trainer_, record());
            say_done("merged", merged);
        }
        or_give_up([&] { views_.end(); });
        print_summary();
        if (options_.profile)
            fmt::print("the last step:\n{}", profile_table(trainer_->plan().step(), profile_));
        if (peaks_.peaks().fastest() > peak_at_start_) fmt::print("MFU at the end of {}\n", peaks_.text());
        fmt::print("memory at most: {:.1f} MB resident\n", megabytes(peak_resident_memory()));
        std::fflush(stdout);
        write_output(options_.run.json, log_.json(peak_resident_memory()));
        if (health_.gave_up()) throw UserError(health_.failure());
        if (interrupted != 0)
            throw Interrupted(interrupted,
                              fmt::format("interrupted after step {}", trainer_->steps_done() - 1));
        if (const std::string failure = validations_->failure(); !failure.empty()) lost_.push_back(failure);
        if (!lost_.empty()) throw UserError(fmt::format("{}", fmt::join(lost_, "; ")));
    }

    /// Facts that every rank must share.
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
        // A signal that arrives meanwhile is for the next step: it must not be overwritten.
        const int agreed = ranks_.first_of(interrupted);
        if (agreed != 0) interrupted = agreed;
        return agreed != 0;
    }

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

    /// The trained model is saved whatever else fails, as when nobody reads the output.
    void make_steps() {
        try {
            since_start_ = {};
            progress_.begin(trainer_->steps_done(), options_.run.steps);
            while (trainer_->steps_done() < options_.run.steps && !is_asked_to_end() && !health_.gave_up() &&
                   !validations_->ran_out_of_patience())
                one_step();
        } catch (const InternalError&) {
            throw;  // a defect: the state is not trustworthy
        } catch (const std::exception&) {
            // Other ranks may be in the middle of a step, or gone, and a save needs all.
            if (!ranks_.get() && !options_.checkpoint.empty() && saved_at_ != trainer_->steps_done())
                or_warn([&] { save(); });
            throw;
        }
    }

    /// A step, and the work that is due after it.
    void one_step() {
        train_step(trainer_->steps_done());
        const std::int64_t done = trainer_->steps_done();
        const auto due = [&](std::int64_t every) { return every > 0 && done % every == 0; };
        if (ranks_.get() && due(options_.compare_every))
            require_same_states(*ranks_.get(), trainer_->state(), done - 1);
        if (due(options_.validate_every)) validate_model();  // each rank alone, without waiting
        if (due(options_.sample_every)) show_sample();
        or_give_up([&] { log_.end_step(); });
        or_give_up([&] { views_.end_step(); });
        if (due(options_.save_every) && done < options_.run.steps) or_warn([&] { save(); });
        progress_.made(done);
    }

    void show_sample() {
        const AveragedWeights averaged(trainer_->state());
        const std::string text = sampler_->sample();
        progress_.clear();
        log_.sample(text);
        views_.sample(text);
    }

    std::string begin_with_published_weights() {
        begun_from_ = options_.run.from;
        trained_before_ = saved_trained_on(begun_from_);
        const std::string begun = input_->begin_with_files(trainer_->state());
        begin_with_adapters(options_.run, trainer_->state());
        return begun + "\n";
    }

    /// Warns, before the run begins, if its result is not saved, or replaces another run's.
    void say_what_is_kept() {
        namespace fs = std::filesystem;
        std::error_code ignored;
        const fs::path state = fs::path(options_.checkpoint) / "state.json";
        if (!options_.checkpoint.empty() && fs::exists(state, ignored) && saved_at_ < 0 &&
            !begun_from_previous())
            say("{} holds a checkpoint of another run; the first save moves it to {}, the second replaces it "
                "there",
                options_.checkpoint, AtomicDirectory::previous_of(options_.checkpoint).string());
        if (const std::string kept = validations_->say_what_is_kept(); !kept.empty() && ranks_.is_first())
            say("{}", kept);
        if (options_.validate_every > 0) warn_of_validation(options_, *input_, begun_from_, trained_before_);
        if (options_.run.quiet) return;
        if (first_step_ == 0 && holds_lines(options_.log))
            say("{} holds the lines of another run, which are now in {}", options_.log,
                AtomicDirectory::previous_of(options_.log).string());
        if (options_.checkpoint.empty()) say("what is trained will not be saved; --checkpoint DIR saves it");
        say_what_does_nothing(planned(), first_step_, longest_sequence_);
    }

    /// The longest sequence of this run and the runs that it continues; 0: not known, or no text.
    std::int64_t longest_sequence() const {
        if (!options_.images.directory.empty()) return 0;
        const std::int64_t own = model_.units_per_example;
        const std::int64_t before = !options_.resume.empty()  ? saved_longest_sequence(options_.resume)
                                    : options_.run.from_files ? options_.run.from_files->trained_on
                                                              : own;
        return before == 0 ? 0 : std::max(own, before);
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
        fmt::print("{}", health_.summary());  // --quiet printed no line about it
        if (Ranks* const all = ranks_.get()) {
            const Ranks::Time time = all->take_time();
            fmt::print(
                "gradients travelled {:.1f} ms a step, of which {:.0f} % behind the backward pass\n",
                1000 * time.travelled / steps,
                time.travelled > 0 ? 100 * std::clamp(1 - time.waited / time.travelled, 0.0, 1.0) : 0.0);
        }
    }

    /// Continues the saved run, after its states were loaded into the trainer.
    void go_on_from(const Resumed& resumed) {
        if (!resumed.warning.empty()) warn("{}", resumed.warning);
        begun_from_ = resumed.directory;
        trained_before_ = saved_trained_on(begun_from_);
        if (const auto curves = resumed.texts.find(curves_name); curves != resumed.texts.end())
            curves_ = curves->second;
        if (const std::string anew = validations_->go_on_from(resumed.validations); !anew.empty())
            warn("{}", anew);
        if (const std::string began = input_->go_on_from(resumed.place); !began.empty()) say("{}", began);
        const std::int64_t done = trainer_->steps_done();
        fmt::print("resumed from {} after step {}\n", options_.resume, done - 1);
        if (!options_.not_continued.empty() && !options_.run.quiet)
            say("not continued: {}", options_.not_continued);
        if (done >= options_.run.steps)
            warn("{} has made {}; --steps {} counts from the first, so there is none to make",
                 options_.resume, count_text(done, "step"), options_.run.steps);
        std::error_code ignored;
        if (std::filesystem::equivalent(begun_from_, options_.checkpoint, ignored)) saved_at_ = done;
        first_step_ = done;
    }

    /// The run's inputs, besides the trainer's options.
    RunRecord record() const {
        RunRecord record;
        record.inputs["learning_rate"] = schedule_.text();
        input_->add_to(record);
        record.place = input_->place_at(trainer_->steps_done());
        record.longest_sequence = longest_sequence_;
        record.validations = validations_->progress();
        record.options = options_.typed;
        for (const auto& [field, value] : chosen_)
            record.options["--" + field] = {field == "accumulate" ? std::to_string(settings_.micro_batches())
                                                                  : value};
        record.base_model = options_.run.from;
        return record;
    }

    /// Whether the next step's batch is read, and brought to the device, while a step works.
    bool reads_ahead() const { return device_->target().overlaps_copies; }

    /// Unreadable data is an error of the step that needs it.
    void read_ahead(std::int64_t index) {
        if (!reads_ahead() || index >= options_.run.steps) return;
        try {
            next_.emplace(index, input_->batch(index));
            trainer_->bring(next_->second);
        } catch (const std::exception&) {
            next_.reset();  // read again at its step, with the error
        }
    }

    void train_step(std::int64_t index) {
        const Batch batch = next_ && next_->first == index ? next_->second : input_->batch(index);
        if (index == first_step_) health_.look_for_underflow(*trainer_, batch);
        StepRecord record;
        record.step = index;
        record.learning_rate = schedule_.at(index);
        record.result = views_.step(*trainer_, batch, record.learning_rate,
                                    options_.profile ? &profile_ : nullptr, [&] { read_ahead(index + 1); });
        record.loss_scale = trainer_->loss_scale();
        health_.add(record, *trainer_, batch);
        const TrainingPlan& plan = trainer_->plan();
        record.units_per_second = static_cast<double>(plan.units_per_step()) / record.result.seconds;
        record.mfu = peaks_.share_of_fastest(plan.flops_per_step() / record.result.seconds);
        const bool last = trainer_->steps_done() == options_.run.steps;
        const bool due = index % options_.print_every == 0 || last || !record.result.applied;
        if (due && !options_.run.quiet) progress_.clear();
        log_.step(record, due && !options_.run.quiet ? TrainLog::Print::yes : TrainLog::Print::no);
        views_.made(record);
        if (const std::string climbed = watch_.add(static_cast<double>(record.result.loss));
            !climbed.empty()) {
            progress_.clear();
            warn("step {}: {}; a lower --learning-rate may help", index, climbed);
        }
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
            warn("{}", remark);
        if (is_best && options_.keep_best) keep_best();
    }

    /// Replaces the previous best checkpoint, which is not kept if it is this run's.
    void keep_best() {
        const std::string place = place_of_best(options_.checkpoint);
        or_warn([&] {
            save_to(place);
            std::error_code ignored;
            if (validations_->replaced_own_best() && ranks_.is_first())
                std::filesystem::remove_all(AtomicDirectory::previous_of(place), ignored);
        });
    }

    /// Whether the first save would replace the checkpoint that the run began from.
    bool begun_from_previous() const {
        std::error_code ignored;
        return !options_.checkpoint.empty() &&
               std::filesystem::equivalent(begun_from_, AtomicDirectory::previous_of(options_.checkpoint),
                                           ignored);
    }

    /// Keeps the checkpoint that the first save would replace. Returns the reason of a failure.
    std::string set_aside() {
        if (!ranks_.is_first() || !begun_from_previous()) return "";
        try {
            const std::filesystem::path aside = AtomicDirectory::set_aside(options_.checkpoint);
            if (!aside.empty() && !options_.run.quiet)
                say("{} as it was is now {}; the run began from {}, which stays", options_.checkpoint,
                    aside.string(), begun_from_.string());
        } catch (const UserError& error) {
            return error.what();
        }
        begun_from_.clear();
        return "";
    }

    /// Saves; all ranks call it together.
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
        say_done("saved", place);
    }

    void say_done(const char* what, const std::string& place) const {
        fmt::print("{} {} after step {}\n", what, place, trainer_->steps_done() - 1);
        std::fflush(stdout);
    }

    /// Saves on the way: after a failure, the run continues and may save later.
    template <class Save>
    void or_warn(Save&& save_it) {
        try {
            save_it();
        } catch (const LostRank&) {
            throw;
        } catch (const UserError& error) {
            if (!ranks_.is_first()) return;
            progress_.clear();
            warn("after step {} nothing was saved: {}", trainer_->steps_done() - 1, error.what());
        }
    }

    /// Reports a failed write now and at the end, and continues: the training matters more. A failure of
    /// standard output ends the run.
    template <class Write>
    void or_give_up(Write&& write) {
        try {
            write();
        } catch (const UserError& error) {
            if (options_.log == "-") throw;
            lost_.emplace_back(error.what());
            progress_.clear();
            warn("{}; the run goes on without it", error.what());
        }
    }

    const TrainOptions& options_;
    TrainRanks& ranks_;
    std::optional<LockFile> checkpoint_lock_;
    LearningRateSchedule schedule_;
    std::unique_ptr<Device> device_;
    Policy policy_;
    TrainerOptions settings_;
    std::vector<std::pair<std::string, std::string>> chosen_;  ///< settings that the user left open
    std::unique_ptr<TrainInput> input_;
    std::optional<TrainingPlan> plan_;  ///< until the trainer exists
    const nn::Model& model_;
    const std::int64_t longest_sequence_ = longest_sequence();
    KeptPeaks peaks_;
    const double peak_at_start_ = peaks_.peaks().fastest();
    std::unique_ptr<Trainer> trainer_;
    std::optional<std::pair<std::int64_t, Batch>> next_;  ///< step and batch read ahead
    Profile profile_;
    StepProgress progress_{options_.run.quiet};
    Stopwatch since_start_;
    std::int64_t first_step_ = 0;
    std::int64_t saved_at_ = -1;
    std::optional<TrainValidations> validations_;
    std::string curves_;                ///< of the page, from the checkpoint; empty: none
    std::filesystem::path begun_from_;  ///< the checkpoint, until the first save
    /// Data of the run that this one began from, and of its own checkpoints.
    std::optional<TrainedOn> trained_before_, trained_on_;
    std::optional<TrainSampler> sampler_;
    TrainHealth health_{options_, ranks_};
    LossWatch watch_;
    std::vector<std::string> lost_;  ///< unwritable reports, and reasons
    TrainLog log_{model_, policy_.name,
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
            Run(*options, ranks).run();
        });
    });
}

}  // namespace mantissa::cli
