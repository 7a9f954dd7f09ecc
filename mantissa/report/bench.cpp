#include "mantissa/report/bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <optional>

#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/base/system_memory.h"
#include "mantissa/report/html.h"
#include "mantissa/report/quantities.h"
#include "mantissa/report/step_estimate.h"
#include "mantissa/train/step_execution.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

namespace {

/// A precision while the benchmark runs.
struct RunningPrecision {
    std::string name;
    Trainer trainer;
    BenchResult result;
    double last_seconds = 0;  ///< of its last step
};

double mean_of(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// 1.96 standard deviations of the whole population, as in the tutorial's script.
double interval_of(const std::vector<double>& values) {
    const double mean = mean_of(values);
    double squares = 0;
    for (const double value : values) squares += (value - mean) * (value - mean);
    return 1.96 * std::sqrt(squares / static_cast<double>(values.size()));
}

void require_positive(const char* field, std::int64_t value) {
    if (value < 1) throw UsageError(fmt::format("`size.{}` must be 1 or more, got {}", field, value));
}

void require_fit(const TrainingPlan& plan) {
    const std::int64_t needed = plan.memory().total(), available = plan.device().free_memory();
    if (needed > available)
        throw UsageError(fmt::format(
            "`size.batch` {}: a step of {} in {} needs {:.2f} GB, {:.2f} GB are available; give fewer, or a "
            "smaller `image_size` or `width`",
            plan.options().batch, plan.model().name, plan.options().policy.name,
            static_cast<double>(needed) / 1e9, static_cast<double>(available) / 1e9));
}

class Bench {
  public:
    Bench(Device& device, const BatchSource& batches, const BenchOptions& options)
        : device_(device),
          options_(options),
          size_(options.size),
          buffer_(options.model, options.size.batch),
          batches_(batches) {}

    BenchReport run() {
        allocate();
        batch_ = buffer_.fill(batches_, 0);  // only after the step is known to fit the memory
        const Stopwatch watch;
        for (RunningPrecision& running : running_) warm_up(running);
        settle_size(options_.max_seconds - watch.seconds());
        for (std::int64_t i = 0; i < size_.iterations; ++i)
            for (RunningPrecision& running : running_) iterate(running, i);
        if (options_.finish) options_.finish(*memory_->state);
        return report();
    }

  private:
    void say(const std::string& what) const {
        if (options_.progress) options_.progress(what);
    }

    void line(const RunningPrecision& running, const std::string& text) const {
        if (options_.line) options_.line(running.name, text);
    }

    void allocate() {
        std::deque<TrainingPlan> plans;
        std::vector<const TrainingPlan*> pointers;
        for (TrainerOptions trainer : options_.precisions) {
            say(trainer.policy.name + ": building");
            trainer.batch = size_.batch;
            plans.emplace_back(device_, options_.model, std::move(trainer));
            pointers.push_back(&plans.back());
        }
        for (const TrainingPlan* plan : pointers) require_fit(*plan);
        memory_ = allocate_training_memory(pointers);
        for (TrainingPlan& plan : plans) {
            BenchResult result{.precision = plan.options().policy.name};
            result.peak_bytes = plan.memory().total();
            result.build_milliseconds = plan.build_milliseconds();
            for (const PlannedNode* planned : contractions_of(plan.step()))
                result.kernels.push_back(planned->kernel);
            running_.push_back({result.precision, Trainer(std::move(plan), memory_), std::move(result)});
        }
    }

    float step(RunningPrecision& running) {
        running.trainer.start(*batch_, options_.learning_rate);
        // As in training: the next images travel while a step works.
        if (device_.target().overlaps_copies) running.trainer.bring(*batch_);
        const StepResult result = running.trainer.finish();
        running.last_seconds = result.seconds;
        if (!std::isfinite(result.loss))
            throw UserError(fmt::format("{}: the loss of batch {} is not finite", running.name,
                                        running.trainer.steps_done()));
        return result.loss;
    }

    /// Trains each precision alone from the seed, so that losses can be compared.
    void warm_up(RunningPrecision& running) {
        memory_->state->initialize(running.trainer.plan().options().seed);
        if (options_.start) options_.start(*memory_->state);
        for (std::int64_t i = 0; i < size_.warmup_batches; ++i) {
            say(fmt::format("{}: warm-up, batch {} of {}", running.name, i + 1, size_.warmup_batches));
            running.result.losses.push_back(static_cast<double>(step(running)));
            line(running, fmt::format("loss: {:.4f}", running.result.losses.back()));
        }
    }

    void settle_size(double seconds_left) {
        if (!options_.free.batches && !options_.free.iterations) return;
        double batch_seconds = 0;
        for (const RunningPrecision& running : running_) batch_seconds += running.last_seconds;
        size_ = affordable_size(size_, options_.free, batch_seconds, seconds_left);
        if (options_.settled)
            options_.settled(size_, batch_seconds * static_cast<double>(size_.iterations * size_.batches));
    }

    void iterate(RunningPrecision& running, std::int64_t index) {
        say(fmt::format("{}: iteration {} of {}", running.name, index + 1, size_.iterations));
        const Stopwatch watch;
        for (std::int64_t i = 0; i < size_.batches; ++i) step(running);
        const double images = static_cast<double>(size_.batch * size_.batches);
        running.result.rates.push_back(images / watch.seconds());
        line(running, fmt::format("Iter #{}: {:.1f} img/sec", index, running.result.rates.back()));
    }

    BenchReport report() {
        const TrainingPlan& first = running_.front().trainer.plan();
        BenchReport report{.target = device_.target(),
                           .model = reported(first.model(), first.facts(), size_.batch),
                           .optimizer = first.options().optimizer.name,
                           .size = size_,
                           .results = {}};
        for (const State& state : first.step().graph().states())
            if (state.kind == State::Kind::running) report.statistics += state.type.shape.elements();
        for (RunningPrecision& running : running_) {
            BenchResult& result = running.result;
            const TrainingPlan& plan = running.trainer.plan();
            result.rate = mean_of(result.rates);
            result.interval = interval_of(result.rates);
            result.speedup = result.rate / running_.front().result.rate;
            if (options_.share_of_peak)
                result.mfu = options_.share_of_peak(plan.facts().flops_per_example * result.rate);
            result.skipped_steps = running.trainer.loss_scale().skipped;
            line(running, fmt::format("Img/sec: {:.1f} +-{:.1f}", result.rate, result.interval));
            report.results.push_back(std::move(result));
        }
        return report;
    }

    Device& device_;
    const BenchOptions& options_;
    BenchSize size_;  // reduced from the options' after the warm-up
    BatchBuffer buffer_;
    const BatchSource& batches_;
    std::optional<Batch> batch_;  // the same in every step, as in the tutorial
    std::shared_ptr<TrainingMemory> memory_;
    std::deque<RunningPrecision> running_;  // a deque keeps trainers in place
};

}  // namespace

BenchReport run_bench(Device& device, const BatchSource& batches, const BenchOptions& options) {
    if (options.precisions.empty()) throw UserError("no precision was asked for");
    require_positive("batch", options.size.batch);
    require_positive("warmup_batches", options.size.warmup_batches);
    require_positive("batches", options.size.batches);
    require_positive("iterations", options.size.iterations);
    return Bench(device, batches, options).run();
}

std::int64_t fitting_batch(Device& device, const BenchOptions& options) {
    const auto fits = [&](std::int64_t batch) {
        return std::ranges::all_of(options.precisions, [&](TrainerOptions trainer) {
            trainer.batch = batch;
            trainer.make_kernels = MakeKernels::no;
            const TrainingPlan plan(device, options.model, std::move(trainer));
            return plan.memory().total() <= device.free_memory();
        });
    };
    std::int64_t batch = 16;
    while (batch > 1 && !fits(batch)) batch /= 2;
    return batch;
}

BenchSize affordable_size(BenchSize size, const FreeBenchSize& free, double batch_seconds, double seconds) {
    constexpr std::int64_t fewest_iterations = 3;
    const double most = static_cast<double>(size.iterations * size.batches);
    const auto affordable = static_cast<std::int64_t>(std::clamp(seconds / batch_seconds, 0.0, most));
    if (free.batches) size.batches = std::clamp<std::int64_t>(affordable / size.iterations, 1, size.batches);
    if (free.iterations)
        size.iterations = std::clamp(affordable / size.batches, std::min(fewest_iterations, size.iterations),
                                     size.iterations);
    return size;
}

namespace {

// The tutorial's table: one A100, 128 images of 224 x 224 a batch.
struct PublishedBench {
    std::string_view model, precision;
    double rate;     ///< images a second
    double speedup;  ///< over FP32
    double loss;     ///< of the first iteration
};

constexpr PublishedBench a100_bench[] = {
    {"ResNet50", "fp32", 455.9, 1.00, 7.45765},    {"ResNet50", "tf32", 750.6, 1.65, 7.45651},
    {"ResNet50", "fp16", 1087.6, 2.38, 7.45703},   {"VGG19", "fp32", 212.7, 1.00, 6.90778},
    {"VGG19", "tf32", 550.3, 2.59, 6.90778},       {"VGG19", "fp16", 1099.8, 5.17, 6.90625},
    {"DenseNet121", "fp32", 391.9, 1.00, 6.96142}, {"DenseNet121", "tf32", 591.5, 1.51, 6.96145},
    {"DenseNet121", "fp16", 876.2, 2.24, 6.96094}};

/// Null if the table has no such row.
const PublishedBench* published_bench(std::string_view model, std::string_view precision) {
    for (const PublishedBench& row : a100_bench)
        if (row.model == model && row.precision == precision) return &row;
    return nullptr;
}

Table results_of(const BenchReport& report) {
    Table table{{{"", "model", nullptr, Column::In::text},
                 {"precision", "precision"},
                 "losses",
                 "images_per_second",
                 {"mean", "img/s", decimals_of<1>},
                 {"interval", "+-", decimals_of<1>},
                 {"speedup", "speed-up", times},
                 {"", "first loss", decimals_of<5>},
                 {"peak_bytes", "memory", megabytes_text},
                 {"mfu", "MFU", percent},
                 {"", "A100: img/s", decimals_of<1>},
                 {"", "speed-up", times},
                 {"", "first loss", decimals_of<5>},
                 "build_ms",
                 {"skipped_steps", "steps skipped"},
                 {"kernels", "kernels", nullptr, Column::In::page}}};
    for (const BenchResult& result : report.results) {
        const PublishedBench* a100 = published_bench(report.model.name, result.precision);
        const auto published = [&](double PublishedBench::*figure) {
            return a100 ? Datum(a100->*figure) : Datum();
        };
        table.add(report.model.name, result.precision, result.losses, result.rates, result.rate,
                  result.interval, result.speedup, result.losses.front(), result.peak_bytes, result.mfu,
                  published(&PublishedBench::rate), published(&PublishedBench::speedup),
                  published(&PublishedBench::loss), result.build_milliseconds, result.skipped_steps,
                  result.kernels);
    }
    return table;
}

std::string rates(const BenchReport& report) {
    std::vector<html::Bar> here, there;
    for (const BenchResult& result : report.results)
        here.push_back({result.precision,
                        {{result.rate, 0, fmt::format("+-{:.1f} img/s", result.interval)}},
                        fmt::format("{:.1f} img/s, {:.2f}x", result.rate, result.speedup)});
    for (const PublishedBench& row : a100_bench)
        if (row.model == report.model.name)
            there.push_back({std::string(row.precision),
                             {{row.rate, 7, ""}},
                             fmt::format("{:.1f} img/s, {:.2f}x", row.rate, row.speedup)});
    std::string text = fmt::format(
        "<h2>Images a second</h2>\n<p class='note'>Means of {} of {}, and how many times "
        "faster than {}. Each side has its own scale.</p>\n<div class='columns'><div><h3>This machine, {} a "
        "batch</h3>\n{}</div>",
        count_text(report.size.iterations, "iteration"), count_text(report.size.batches, "batch", "batches"),
        report.results.front().precision, report.model.examples, html::bars(here));
    if (!there.empty())
        text += fmt::format(
            "<div><h3>One A100, 128 images a batch</h3>\n{}<p class='note'>The mixed-precision tutorial's "
            "figures. Nothing on this page was measured on an A100.</p></div>",
            html::bars(there));
    return text + "</div>\n";
}

std::string iterations(const BenchReport& report) {
    std::vector<html::Curve> rates;
    for (std::size_t i = 0; i < report.results.size(); ++i)
        rates.push_back({report.results[i].precision, report.results[i].rates, i});
    return "<h2>Each iteration</h2>\n" + html::curves(rates, "images a second");
}

}  // namespace

std::string bench_table(const BenchReport& report) {
    std::string text = fmt::format(
        "{}, {} parameters{}, {} a batch, {}\n{}, {}, {}\n\n{}", report.model.name,
        grouped(static_cast<double>(report.model.parameters)),
        report.statistics == 0
            ? std::string()
            : fmt::format(" ({} with running statistics, as Keras counts)",
                          grouped(static_cast<double>(report.model.parameters + report.statistics))),
        report.model.examples, report.optimizer, report.target.name, report.target.isa,
        threads_text(report.target), results_of(report).text());
    text += "\n";
    if (std::ranges::any_of(report.results, [&](const BenchResult& result) {
            return published_bench(report.model.name, result.precision) != nullptr;
        }))
        text += "A100: the tutorial's, 128 images of 224 x 224 a batch\n";
    for (const BenchResult& result : report.results)
        text += fmt::format("  {:<9} {}\n", result.precision, fmt::join(result.kernels, ", "));
    return text;
}

std::string bench_html(const BenchReport& report, const std::string& command) {
    const std::string title = fmt::format("{}: {:.1f} images a second in {}", report.model.name,
                                          report.results.front().rate, report.results.front().precision);
    return html::page(
        title,
        fmt::format("<p>{} parameters, {}, {} a batch, on {}, {}, {}.</p>\n{}{}"
                    "<p class='note'>+-: 1.96 standard deviations of the iterations. MFU: the model's "
                    "arithmetic a second over the machine's fastest matrix peak. Memory: planned, state, "
                    "activations and inputs. A100: the tutorial's.</p>\n{}{}",
                    grouped(static_cast<double>(report.model.parameters)), report.optimizer,
                    report.model.examples, html::escaped(report.target.name), report.target.isa,
                    threads_text(report.target), rates(report), html::table(results_of(report).on_page()),
                    iterations(report), html::footer(command)));
}

std::string bench_json(const BenchReport& report) {
    return json_of("bench", {{"machine", machine_of(report.target)},
                             {"model.name", report.model.name},
                             {"model.parameters", report.model.parameters},
                             {"model.running_statistics", report.statistics},
                             {"optimizer", report.optimizer},
                             {"batch", report.size.batch},
                             {"warmup_batches", report.size.warmup_batches},
                             {"batches_per_iteration", report.size.batches},
                             {"iterations", report.size.iterations},
                             {"peak_resident_bytes", peak_resident_memory()},
                             {"results", results_of(report)}});
}

}  // namespace mantissa
