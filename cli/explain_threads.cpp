// `explain --threads`: a step's estimated time on so many threads, from its blocks on one thread, and the
// launches that do not scale.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "cli/command_line.h"
#include "cli/explain_steps.h"
#include "cli/output_file.h"
#include "cli/progress_line.h"
#include "mantissa/base/clock.h"
#include "mantissa/data/synthetic_images.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/report/kept_peaks.h"
#include "mantissa/report/roofline.h"
#include "mantissa/report/thread_estimate.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::cli {

namespace {

/// Tokens without a text: a roofline depends on sizes, not on words. A sequence of packed documents is one
/// document, with the largest attention.
class SomeTokens final : public BatchSource {
  public:
    SomeTokens(std::int64_t vocabulary, std::int64_t sequence)
        : vocabulary_(vocabulary), sequence_(sequence) {}

    void fill(std::uint64_t, std::int64_t, std::span<const std::span<std::byte>> inputs) const override {
        for (const std::span<std::byte> bytes : inputs.first(2)) {
            const std::span tokens(reinterpret_cast<std::int32_t*>(bytes.data()), bytes.size() / 4);
            for (std::size_t i = 0; i < tokens.size(); ++i)
                tokens[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) * 7919 % vocabulary_);
        }
        if (inputs.size() == 2) return;
        const std::span documents(reinterpret_cast<std::int32_t*>(inputs[2].data()), inputs[2].size() / 4),
            positions(reinterpret_cast<std::int32_t*>(inputs[3].data()), inputs[3].size() / 4);
        std::ranges::fill(documents, 0);
        for (std::size_t i = 0; i < positions.size(); ++i)
            positions[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % sequence_);
        const std::span counted(reinterpret_cast<float*>(inputs[4].data()), inputs[4].size() / 4);
        std::ranges::fill(counted, static_cast<float>(positions.size()));
    }
    std::uint64_t steps_per_epoch() const override { return 1; }
    std::string description() const override { return "tokens without a text"; }

  private:
    std::int64_t vocabulary_, sequence_;
};

}  // namespace

TrainerOptions in_policy(const RunOptions& options, const Policy& policy, const Target& target) {
    TrainerOptions settings = trainer_options(options);
    settings.policy = policy;
    choose_passes(options, target, settings);
    return settings;
}

std::unique_ptr<const BatchSource> some_batches(const RunOptions& options, const nn::Model& model) {
    if (nn::is_image_model(options.model))
        return std::make_unique<SyntheticImages>(nn::image_sizes(options.model, options.images),
                                                 options.seed);
    return std::make_unique<SomeTokens>(language_model(options).vocabulary, model.units_per_example);
}

namespace {

constexpr int max_threads = 1024;

void validate(const RunOptions& run, const ThreadQuestion& question) {
    if (run.device != "cpu") refuse_value("--device", "a step on more threads is predicted of the CPU alone");
    if (run.threads < 1 || run.threads > max_threads)
        refuse_value("--threads",
                     fmt::format("must be from 1 to {} to predict a step, got {}", max_threads, run.threads));
    if (!(question.memory_rate >= 0))
        refuse_value("--memory-rate",
                     fmt::format("must be more than 0 GB/s, got {:g}", question.memory_rate));
}

RunOptions on_threads(RunOptions run, int threads) {
    run.threads = threads;
    run.quiet = true;  // more threads than cores are planned for, never run
    return run;
}

TrainingPlan plan_on(const RunOptions& run, Device& device) {
    return {device, training_model(run), in_policy(run, policy_for(run, device.target()), device.target())};
}

/// The memory of a step on so many threads.
std::int64_t planned_bytes(const RunOptions& run, int threads) {
    const auto device = open_device(on_threads(run, threads));
    TrainerOptions to_read = in_policy(run, policy_for(run, device->target()), device->target());
    to_read.make_kernels = MakeKernels::no;
    return TrainingPlan(*device, training_model(run), std::move(to_read)).memory().total();
}

PlannedMachine machine_of(const RunOptions& run, const ThreadQuestion& question, Device& one_thread) {
    PlannedMachine machine{.pool = measured_pool_costs(), .memory = {.one = known_peaks(one_thread).copy}};
    const auto all_threads = open_device(on_threads(run, available_cores()));
    const double given = question.memory_rate * 1e9;
    machine.memory.all = given > 0 ? given : std::max(machine.memory.one, known_peaks(*all_threads).copy);
    return machine;
}

/// A step with its loops recorded block by block.
RecordedStep recorded_step(Trainer& trainer, const Batch& batch) {
    RecordedStep step;
    LoopRecorder recorder;
    const auto run = [&](Execution& execution, bool) {
        double begin = 0;
        execution.run_while(
            [&](NodeId) {
                begin = LoopRecorder::seconds_on_core();
                return true;
            },
            [&](NodeId) {
                const double seconds = LoopRecorder::seconds_on_core() - begin;
                step.launches.push_back({.seconds = seconds, .loops = recorder.take()});
                return true;
            });
    };
    step.seconds = trainer.step_run_by(batch, 1e-4, run).seconds;
    return step;
}

/// Runs steps on one thread: one for warm-up, then timed and recorded ones in turns; fewer if they are long.
RecordedStep measured_step(Trainer& trainer, const RunOptions& run) {
    constexpr int least = 3, most = 15;
    constexpr double enough_seconds = 10;
    BatchBuffer buffer(trainer.model(), trainer.plan().options().batch);
    const Batch batch = buffer.fill(*some_batches(run, trainer.model()), 0);
    ProgressLine progress(run.quiet);
    progress.show("a step to warm up");
    trainer.step(batch, 1e-4);
    std::vector<ProfiledStep> undisturbed;
    std::vector<RecordedStep> recorded;
    const Stopwatch watch;
    for (int turn = 0; turn < least || (turn < most && watch.seconds() < enough_seconds); ++turn) {
        progress.show(fmt::format("turn {} of at most {}", turn + 1, most));
        Profile profile;
        const StepResult result = trainer.step(batch, 1e-4, &profile);
        undisturbed.push_back({std::move(profile), result.seconds});
        recorded.push_back(recorded_step(trainer, batch));
    }
    progress.clear();
    return typical_step(recorded, median_step(undisturbed));
}

}  // namespace

void explain_threads(const RunOptions& run, const ThreadQuestion& question) {
    validate(run, question);
    const RunOptions on_one = on_threads(run, 1);
    const auto device = make_cpu_device({.threads = 1, .threads_to_cut_for = run.threads});
    const PlannedMachine machine = machine_of(run, question, *device);
    Trainer trainer(plan_on(on_one, *device));
    const RecordedStep step = measured_step(trainer, on_one);
    const Explanation explanation = explain(trainer.plan());
    ThreadReport report = estimate_threads(trainer.plan().step(), step, thread_counts(run.threads), machine);
    report.title = fmt::format("{}\n{}", explanation.title(), explanation.passes_text());
    for (ThreadEstimate& each : report.estimates) each.planned_bytes = planned_bytes(run, each.threads);
    fmt::print("{}", thread_table(report));
    write_output(run.json, explain_json(explanation, &report));
}

}  // namespace mantissa::cli
