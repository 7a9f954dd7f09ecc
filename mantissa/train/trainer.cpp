#include "mantissa/train/trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <list>
#include <set>
#include <string>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/base/function_ref.h"
#include "mantissa/graph/graph.h"
#include "mantissa/ranks/ranks.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/non_finite.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/adapter_files.h"
#include "mantissa/train/diagnosis.h"
#include "mantissa/train/ema.h"
#include "mantissa/train/memory_fit.h"
#include "mantissa/train/model_file.h"
#include "mantissa/train/schedule.h"
#include "mantissa/train/step_execution.h"
#include "mantissa/train/training_checkpoint.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

namespace {

/// Throws UserError where the policy is below sixteen bits and rounds nothing.
TrainingPlan rounding_something(TrainingPlan plan) {
    const Policy& policy = plan.options().policy;
    if (!policy.blocks || !plan.step().kernels_of("round_blocks").empty()) return plan;
    std::set<std::string> reasons;
    for (const PassRefusal& refusal : plan.refused())
        if (refusal.pass == "round_operands") reasons.insert(refusal.reason);
    throw UserError(fmt::format("policy {} rounds nothing in {}: {}; train it under bf16", policy.name,
                                plan.model().name,
                                reasons.empty() ? "it has no linear layer and no convolution"
                                                : fmt::to_string(fmt::join(reasons, "; "))));
}

/// A step in memory of its own, with parameters drawn from its seed.
StepExecution execution_of(TrainingPlan made) {
    TrainingPlan plan = rounding_something(std::move(made));
    const TrainingPlan* const only = &plan;
    std::shared_ptr<TrainingMemory> memory = allocate_training_memory({&only, 1});
    memory->state->initialize(plan.options().seed);
    return {std::move(plan), std::move(memory)};
}

}  // namespace

struct Trainer::Run {
    StepExecution execution;                                ///< for the shape that the trainer was made for
    std::list<std::unique_ptr<StepExecution>> others = {};  ///< for other shapes, the last used first
    StepExecution* current = nullptr;                       ///< that made the last step; null: `execution`
    std::optional<StepResult> finished = {};      ///< of a step that ended before `finish` was called
    std::optional<Gradients> gradients = {};      ///< of a step that stopped there
    std::unique_ptr<Event> begin = {}, end = {};  ///< of the started step; no end: none was started
    std::int64_t steps = 0;
    float last_scale = 1;  ///< the loss scale that the last step ran with
    bool applied = true;   ///< whether the last step was applied
    std::optional<BatchBuffer> buffer = {};

    StepExecution& last() { return current ? *current : execution; }
    /// Whether a step was started and not finished.
    bool works() const { return end != nullptr; }
    /// The step's execution for a batch, planned where such a shape first comes. `settle` is called before
    /// memory of the running step is freed.
    StepExecution& of(const Batch& batch, FunctionRef<void()> settle);

    /// Drops the gradients of a step that went no further; its kept micro-batches are no part of another
    /// step.
    void let_gradients_go() {
        if (gradients && execution.plan().options().accumulate > 1) execution.clear_gradients();
        gradients.reset();
    }

  private:
    StepExecution& planned(const BatchShape& shape, FunctionRef<void()> settle);
};

StepExecution& Trainer::Run::of(const Batch& batch, FunctionRef<void()> settle) {
    const TrainingPlan& plan = execution.plan();
    const BatchShape& own = plan.shape();
    const Ranks* const ranks = plan.options().ranks;
    const BatchShape shape = shape_of(batch, plan.model(), own.examples);
    if (shape == own) return execution;
    // All ranks make the same steps.
    if (ranks && ranks->size() > 1) require_fit(batch, plan.model(), own.examples);
    const auto known =
        std::ranges::find_if(others, [&](const auto& each) { return each->plan().shape() == shape; });
    if (known == others.end()) return planned(shape, settle);
    others.splice(others.begin(), others, known);
    return *others.front();
}

StepExecution& Trainer::Run::planned(const BatchShape& shape, FunctionRef<void()> settle) {
    TrainingPlan plan(execution.plan(), shape, execution.state());
    const std::size_t most = std::max<std::size_t>(2, execution.plan().options().plans);
    const std::shared_ptr<TrainingMemory>& memory = execution.memory();
    settle();
    let_gradients_go();
    current = nullptr;
    if (StepExecution::make_room(*memory, plan)) {
        execution.bind();
        for (const auto& each : others) each->bind();
    }
    while (others.size() + 1 >= most) others.pop_back();
    others.push_front(std::make_unique<StepExecution>(std::move(plan), memory));
    return *others.front();
}

Trainer::Trainer(Device& device, nn::Model model, TrainerOptions options)
    : Trainer(plan_that_fits(device, std::move(model), std::move(options))) {}

Trainer::Trainer(TrainingPlan plan) : run_(new Run{execution_of(std::move(plan))}) {}

Trainer::Trainer(TrainingPlan plan, std::shared_ptr<TrainingMemory> memory)
    : run_(new Run{StepExecution(rounding_something(std::move(plan)), std::move(memory))}) {}

Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

const TrainingPlan& Trainer::plan() const { return run_->execution.plan(); }
const nn::Model& Trainer::model() const { return plan().model(); }
StateBlock& Trainer::state() const { return run_->execution.state(); }
Evaluation Trainer::evaluate(const Batch& batch) { return run_->execution.evaluate(batch); }
LossScaleState Trainer::loss_scale() const { return run_->execution.loss_scale(); }
std::size_t Trainer::planned_shapes() const { return 1 + run_->others.size(); }
std::int64_t Trainer::steps_done() const { return run_->steps; }
void Trainer::continue_after(std::int64_t steps) { run_->steps = steps; }

Examples Trainer::examples(const Batch& all, BatchOrder order) const {
    return {model(), all, plan().options().batches(order)};
}

StepResult Trainer::step(const Batch& batch, double learning_rate, std::vector<double>* profile) {
    if (!profile) {
        start(batch, learning_rate);
        return finish();
    }
    return step_run_by(batch, learning_rate,
                       [&](Execution& execution, bool last) { execution.run(last ? profile : nullptr); });
}

StepResult Trainer::step(const BatchSource& batches, double learning_rate) {
    if (!run_->buffer)
        run_->buffer.emplace(model(), plan().options().batch, plan().options().accumulate,
                             plan().options().first_micro_batch());
    return step(run_->buffer->fill(batches, static_cast<std::uint64_t>(steps_done())), learning_rate);
}

StepResult Trainer::step_run_by(const Batch& batch, double learning_rate,
                                FunctionRef<void(Execution&, bool)> run) {
    start_by(batch, learning_rate, run);
    return finish();
}

void Trainer::start(const Batch& batch, double learning_rate) {
    start_by(batch, learning_rate, [](Execution& execution, bool) { execution.start(); });
}

void Trainer::start_by(const Batch& batch, double learning_rate, FunctionRef<void(Execution&, bool)> run) {
    require_step_rate(learning_rate);
    require_own_weights(state());
    StepExecution& execution = run_->of(batch, [] {});
    check_ids(execution.plan().id_ranges(), execution.plan().model(), batch);
    run_->let_gradients_go();
    run_->finished.reset();
    run_->current = &execution;
    run_->last_scale = static_cast<float>(loss_scale().scale);
    execution.derive();
    run_->begin = plan().device().record();
    const std::int64_t last = execution.plan().options().accumulate - 1;
    try {
        for (std::int64_t index = 0; index <= last; ++index)
            run(execution.prepare(batch,
                                  {.step = run_->steps, .index = index, .learning_rate = learning_rate}),
                index == last);
    } catch (...) {
        // Gradients in transit are in memory that may be freed when the error is thrown.
        if (Ranks* const ranks = plan().options().ranks) ranks->settle();
        throw;
    }
    run_->end = plan().device().record();
}

const Gradients& Trainer::gradients(const Batch& batch) {
    std::optional<Gradients> stopped;
    start_by(batch, 0, [&](Execution& execution, bool last) {
        if (last)
            stopped.emplace(execution, run_->last_scale);
        else
            execution.run();
    });
    run_->gradients = std::move(stopped);
    return *run_->gradients;
}

StepResult Trainer::update(double learning_rate) {
    require_step_rate(learning_rate);
    require_own_weights(state());
    if (!run_->gradients) throw UserError("there is no step to update by: ask for its gradients first");
    run_->gradients->update(static_cast<float>(learning_rate));
    run_->gradients.reset();
    run_->end = plan().device().record();
    return finish();
}

void Trainer::change(TrainerOptions options) {
    require_own_weights(state());
    StepExecution next = execution_of({plan().device(), model(), std::move(options)});
    for (const State& each : next.state().states())
        if ((is_weight(each) || each.kind == State::Kind::optimizer) && state().has(each.name) &&
            state().type(each.name) == each.type)
            next.state().write(each.name, state().read(each.name));
    run_->gradients.reset();
    run_->end.reset();
    run_->buffer.reset();
    run_->finished.reset();
    run_->others.clear();
    run_->current = nullptr;
    run_->execution = std::move(next);
}

void Trainer::save(const std::filesystem::path& directory) { save_training(directory, *this); }

std::string Trainer::resume(const std::filesystem::path& directory) {
    return resume_training(directory, *this).warning;
}

UnfitWeights Trainer::load_weights(const std::filesystem::path& file, Match match) {
    require_own_weights(state());
    return mantissa::load_weights(model(), file, state(), match);
}

void Trainer::save_weights(const std::filesystem::path& file) const {
    const std::optional<nn::LoraOptions>& lora = plan().options().lora;
    if (!lora) return mantissa::save_weights(model(), state(), file);
    write_safetensors(
        file,
        std::span<const TensorToWrite>(stored_weights(merged_weights(state(), *lora), nn::files_of(model()))),
        {{"format", "pt"}});
}

void Trainer::bring(const Batch& next) {
    const std::int64_t step = run_->steps + 1;
    // Before memory for the next step is taken, the running step ends.
    StepExecution& execution = run_->of(next, [this] {
        if (run_->works()) run_->finished = finish();
    });
    execution.bring(next, step);
}

void Trainer::forget_brought() {
    run_->execution.forget_brought();
    for (const auto& each : run_->others) each->forget_brought();
}

StepResult Trainer::finish() {
    if (run_->finished) return *std::exchange(run_->finished, std::nullopt);
    check(run_->works(), "a step that was started is finished");
    const Execution& last = run_->last().last();
    Device& device = plan().device();
    device.wait(*run_->end);  // the only time in a step that the host waits
    StepResult result;
    result.seconds = device.seconds_between(*run_->begin, *run_->end);
    run_->end.reset();
    result.loss = last.read_scalar("loss");
    result.gradient_norm = last.read_scalar("gradient_norm");
    result.metrics = metrics_of(last);
    result.applied = last.read_result("applied")[0] != std::byte{0};
    run_->applied = result.applied;
    ++run_->steps;
    return result;
}

std::optional<NonFinite> Trainer::first_non_finite(const Batch& batch, double learning_rate) {
    check(!run_->applied, "a step that was applied would be applied again");
    const Ranks::Alone alone(plan().options().ranks);
    return mantissa::first_non_finite(
        run_->of(batch, [] {}), batch,
        {.step = run_->steps - 1, .learning_rate = learning_rate, .loss_scale = run_->last_scale});
}

Underflow Trainer::underflow(const Batch& batch) {
    const Ranks::Alone alone(plan().options().ranks);
    return mantissa::underflow(run_->of(batch, [] {}), batch, run_->steps);
}

void Trainer::look_into(const Batch& batch, FunctionRef<void(Execution&)> look) {
    const Ranks::Alone alone(plan().options().ranks);
    StepExecution& execution = run_->of(batch, [] {});
    execution.clear_gradients();
    look(execution.prepare(batch, {.step = run_->steps, .index = execution.plan().options().accumulate - 1}));
}

}  // namespace mantissa
