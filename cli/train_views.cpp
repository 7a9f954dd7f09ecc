#include "cli/train_views.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "cli/output_file.h"
#include "cli/print_error.h"
#include "mantissa/base/error.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/report/quantities.h"
#include "mantissa/report/trace_events.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/train/gradients.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::cli {

namespace {

/// Seconds between writes of the page, which is written once more at the end.
constexpr double page_seconds = 10;

/// Steps before the traced one: memory is touched for the first time, and caches and clocks settle.
constexpr std::int64_t untraced_steps = 3;

/// The present time in UTC.
std::string now() { return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::time(nullptr))); }

ValueHistogram histogram_of(const Execution& execution, Value value) {
    const DType dtype = execution.plan().graph().type(value).dtype;
    ValueHistogram histogram;
    std::vector<float> numbers;
    execution.read_in_pieces(value, [&](std::int64_t, std::span<const std::byte> bytes) {
        numbers.resize(bytes.size() / size_of(dtype));
        for (std::size_t i = 0; i < numbers.size(); ++i)
            numbers[i] = static_cast<float>(load_as_f64(bytes.data(), dtype, static_cast<std::int64_t>(i)));
        histogram.add(numbers);
        return true;
    });
    return histogram;
}

std::vector<std::pair<std::string, std::string>> facts_of(const TrainingPlan& plan, const std::string& data) {
    const TrainerOptions& options = plan.options();
    const Target& target = plan.device().target();
    std::string batch = nn::batch_text(plan.model(), options.batch);
    if (options.accumulate > 1) batch = fmt::format("{} x {}", options.accumulate, batch);
    return {{plan.model().unit == "images" ? "images" : "text", data},
            {"model", fmt::format("{}, {} parameters", plan.model().name,
                                  grouped(static_cast<double>(plan.facts().parameters)))},
            {"a step", batch},
            {"precision", std::string(options.policy.name)},
            {"optimizer", options.optimizer.name},
            {"seed", fmt::format("{}", options.seed)},
            {"machine", fmt::format("{}, {}, {}", target.name, target.isa, threads_text(target))}};
}

}  // namespace

void add_view_options(Command& command, ViewOptions& options) {
    const auto writes_events = [](const std::string& given) {
        try {
            require_event_directory(given);
        } catch (const UserError& error) {
            throw UserError(fmt::format("--tensorboard {}", error.what()));
        }
        return std::string();
    };
    command.add(
        "Reports",
        {trace_option(options.trace,
                      "Write the fourth step, or the last of fewer, for chrome://tracing or Perfetto: each "
                      "launch on each thread"),
         Row("--tensorboard", &options.tensorboard,
             "Write loss, learning rate, norm, speed and samples to this folder, for TensorBoard",
             {.type = "DIR", .is_path = true, .check = writes_events, .kept = Kept::report}),
         Row("--histogram-every", &options.histogram_every,
             "With --tensorboard: steps between histograms of every parameter's gradient; 0: never",
             {.range = {0, "0 (never) or more steps"}, .needs = "--tensorboard"}),
         html_option(options.html,
                     "Write the run as a page with curves and samples, every 10 seconds and at the end")});
}

namespace {

/// Keeps a page with steps that this run cannot show.
void keep_page_of_before(const std::string& path, std::int64_t first_step) {
    std::error_code failed;
    if (first_step == 0 || !std::filesystem::is_regular_file(path, failed)) return;
    const std::string aside = fmt::format("{}.before-{}", path, first_step);
    std::filesystem::rename(path, aside, failed);
    if (!failed)
        say("{}: the checkpoint keeps no curves of the steps before {}; the page as it was is now {}", path,
            first_step, aside);
}

}  // namespace

std::string TrainViews::kept() const { return page_ ? page_->kept(seconds()) : ""; }

void TrainViews::begin(const Trainer& trainer, const Beginning& beginning) {
    const std::int64_t steps = beginning.steps;
    const TrainingPlan& plan = trainer.plan();
    const std::int64_t first = trainer.steps_done();
    scales_loss_ = plan.options().loss_scale.kind != LossScaleOptions::Kind::none;
    unit_ = plan.model().unit;
    run_ = fmt::format("{}, {}, {}", plan.model().name, nn::batch_text(plan.model(), plan.options().batch),
                       plan.options().policy.name);
    if (!options_.trace.empty() && first < steps) traced_step_ = std::min(first + untraced_steps, steps - 1);
    if (!options_.tensorboard.empty()) events_.emplace(options_.tensorboard, first);
    if (options_.html.empty()) return;
    TrainingRun run;
    run.model = plan.model().name;
    run.command = options_.command;
    run.steps = steps;
    run.unit = unit_;
    run.judged = beginning.judged;
    run.facts = facts_of(plan, beginning.data);
    for (const ChatPart& part : beginning.example) run.example.push_back({part.text, part.learnt});
    page_.emplace(std::move(run));
    if (!beginning.kept.empty())
        seconds_before_ = page_->go_on(beginning.kept);
    else
        keep_page_of_before(options_.html, first);
    since_begin_.restart();
}

StepResult TrainViews::step(Trainer& trainer, const Batch& batch, double learning_rate, Profile* profile,
                            FunctionRef<void()> meanwhile) {
    step_ = trainer.steps_done();
    if (events_ && options_.histogram_every > 0 && step_ % options_.histogram_every == 0)
        histograms_due_ = true;  // of this step, or of the next if this one is traced
    if (step_ == traced_step_) return traced_step(trainer, batch, learning_rate, profile);
    if (histograms_due_) return shown_step(trainer, batch, learning_rate, profile);
    if (profile) return trainer.step(batch, learning_rate, profile);
    trainer.start(batch, learning_rate);
    meanwhile();
    return trainer.finish();
}

StepResult TrainViews::traced_step(Trainer& trainer, const Batch& batch, double learning_rate,
                                   Profile* profile) {
    TimelineRecorder recorder(trainer.plan().device());
    const StepResult result =
        trainer.step_run_by(batch, learning_rate, [&](Execution& each, bool) { recorder.run(each); });
    const Timeline timeline = recorder.finish();
    if (profile) *profile = timeline.runs.back().launches;
    traced_step_ = -1;
    try {
        write_output(options_.trace, step_trace(timeline, run_, fmt::format("step {}", step_)));
    } catch (const UserError& error) {  // the training matters more
        warn("--trace {}", error.what());
    }
    return result;
}

StepResult TrainViews::shown_step(Trainer& trainer, const Batch& batch, double learning_rate,
                                  Profile* profile) {
    // The scale of this step's gradients; the next step's may differ.
    const double scale = trainer.loss_scale().scale;
    double shown = 0;
    StepResult result = trainer.step_run_by(batch, learning_rate, [&](Execution& each, bool last) {
        if (!last) return each.run();
        const auto show = [&](const std::string& parameter, Value gradient) {
            events_->add_histogram("gradients/" + parameter, histogram_of(each, gradient), scale);
        };
        shown = run_showing_gradients(each, show, profile);
    });
    result.seconds -= shown;
    histograms_due_ = false;
    return result;
}

void TrainViews::made(const StepRecord& record) {
    const StepResult& result = record.result;
    if (events_) {
        events_->add_scalar("loss/training", static_cast<double>(result.loss));
        events_->add_scalar("optimizer/learning_rate", record.learning_rate);
        events_->add_scalar("optimizer/gradient_norm", static_cast<double>(result.gradient_norm));
        if (scales_loss_) events_->add_scalar("optimizer/loss_scale", record.loss_scale.scale);
        events_->add_scalar(fmt::format("speed/{}_per_second", unit_), record.units_per_second);
        events_->add_scalar("speed/mfu", record.mfu);
    }
    if (!page_) return;
    TrainingPoint point;
    point.step = record.step;
    point.loss = static_cast<double>(result.loss);
    point.learning_rate = record.learning_rate;
    point.gradient_norm = static_cast<double>(result.gradient_norm);
    point.units_per_second = record.units_per_second;
    point.mfu = record.mfu;
    point.applied = result.applied;
    page_->add(point);
}

void TrainViews::validation(const Validation& result) {
    if (events_) events_->add_scalar("loss/validation", result.loss);
    if (page_) page_->add_validation(result.loss);
    if (!result.scores) return;
    if (events_) {
        events_->add_scalar("accuracy/top1", result.scores->top1_share());
        events_->add_scalar("accuracy/top5", result.scores->top5_share());
    }
    if (page_) page_->add_accuracy(result.scores->top1_share(), result.scores->top5_share());
}

void TrainViews::sample(const std::string& text) {
    if (events_) events_->add_text("sample", text);
    if (page_) page_->add_sample(text);
}

bool TrainViews::page_is_due() const {
    if (!page_) return false;
    if (since_page_) return since_page_->seconds() >= page_seconds;
    // In a pipe or a device, pages would follow one another.
    std::error_code ignored;
    return !std::filesystem::exists(options_.html, ignored) ||
           std::filesystem::is_regular_file(options_.html, ignored);
}

void TrainViews::end_step() {
    if (page_is_due()) {
        try {
            write_page(TrainingState::runs);
        } catch (const UserError& error) {
            // A file that cannot be written now may be writable at the end.
            if (!warned_) warn("--html: {}", error.what());
            warned_ = true;
        }
        since_page_.emplace();
    }
    try {
        if (events_) events_->write(step_);
    } catch (const UserError&) {
        events_.reset();
        histograms_due_ = false;
        throw;
    }
}

void TrainViews::end() {
    if (page_) write_page(TrainingState::ended);
    if (traced_step_ >= 0)
        warn("--trace {}: nothing was written, since the run ended before step {}", options_.trace,
             traced_step_);
}

void TrainViews::write_page(TrainingState state) {
    write_output(options_.html, page_->html(state, now(), seconds()));
}

}  // namespace mantissa::cli
