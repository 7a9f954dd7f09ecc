#include "mantissa/train/trainer.h"

#include "mantissa/base/error.h"
#include "mantissa/base/function_ref.h"
#include "mantissa/graph/graph.h"
#include "mantissa/ranks/ranks.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/non_finite.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/runtime/underflow.h"
#include "mantissa/train/diagnosis.h"
#include "mantissa/train/ema.h"
#include "mantissa/train/schedule.h"
#include "mantissa/train/step_execution.h"
#include "mantissa/train/training_checkpoint.h"
#include "mantissa/train/training_plan.h"
#include "mantissa/train/weights.h"

namespace mantissa::inline v0 {

namespace {

/// In memory of its own, with parameters drawn from its seed.
StepExecution execution_of(TrainingPlan plan) {
    const TrainingPlan* const only = &plan;
    std::shared_ptr<TrainingMemory> memory = allocate_training_memory({&only, 1});
    memory->state->initialize(plan.options().seed);
    return {std::move(plan), std::move(memory)};
}

}  // namespace

struct Trainer::Run {
    StepExecution execution;
    std::optional<Gradients> gradients = {};      ///< at which a step stopped
    std::unique_ptr<Event> begin = {}, end = {};  ///< of the step that was started; no end: none was
    std::int64_t steps = 0;
    float last_scale = 1;  ///< the loss scale that the last step ran with
    bool applied = true;   ///< the last step
    std::optional<BatchBuffer> buffer = {};
};

Trainer::Trainer(Device& device, nn::Model model, TrainerOptions options)
    : Trainer(TrainingPlan(device, std::move(model), std::move(options))) {}

Trainer::Trainer(TrainingPlan plan) : run_(new Run{execution_of(std::move(plan))}) {}

Trainer::Trainer(TrainingPlan plan, std::shared_ptr<TrainingMemory> memory)
    : run_(new Run{StepExecution(std::move(plan), std::move(memory))}) {}

Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

const TrainingPlan& Trainer::plan() const { return run_->execution.plan(); }
const nn::Model& Trainer::model() const { return plan().model(); }
StateBlock& Trainer::state() const { return run_->execution.state(); }
Evaluation Trainer::evaluate(const Batch& batch) { return run_->execution.evaluate(batch); }
LossScaleState Trainer::loss_scale() const { return run_->execution.loss_scale(); }
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
    require_fit(batch, model(), plan().examples_per_step());
    check_ids(plan().id_ranges(), model(), batch);
    // Micro-batches that were kept by a step that went no further than its gradients are no part of this one.
    if (run_->gradients && plan().options().accumulate > 1) run_->execution.clear_gradients();
    run_->gradients.reset();
    run_->last_scale = static_cast<float>(loss_scale().scale);
    run_->execution.derive();
    run_->begin = plan().device().record();
    const std::int64_t last = plan().options().accumulate - 1;
    try {
        for (std::int64_t index = 0; index <= last; ++index)
            run(run_->execution.prepare(
                    batch, {.step = run_->steps, .index = index, .learning_rate = learning_rate}),
                index == last);
    } catch (...) {
        // Gradients on their way are in memory that may be freed when the error is thrown.
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
    mantissa::save_weights(model(), state(), file);
}

void Trainer::bring(const Batch& next) {
    require_fit(next, model(), plan().examples_per_step());
    run_->execution.bring(next, run_->steps + 1);
}

void Trainer::forget_brought() { run_->execution.forget_brought(); }

StepResult Trainer::finish() {
    check(run_->end != nullptr, "a step that was started is finished");
    Device& device = plan().device();
    device.wait(*run_->end);  // the only time in a step that the host waits
    StepResult result;
    result.seconds = device.seconds_between(*run_->begin, *run_->end);
    run_->end.reset();
    result.loss = run_->execution.last().read_scalar("loss");
    result.gradient_norm = run_->execution.last().read_scalar("gradient_norm");
    result.metrics = metrics_of(run_->execution.last());
    result.applied = run_->execution.last().read_result("applied")[0] != std::byte{0};
    run_->applied = result.applied;
    ++run_->steps;
    return result;
}

std::optional<NonFinite> Trainer::first_non_finite(const Batch& batch, double learning_rate) {
    check(!run_->applied, "a step that was applied would be applied again");
    const Ranks::Alone alone(plan().options().ranks);
    return mantissa::first_non_finite(
        run_->execution, batch,
        {.step = run_->steps - 1, .learning_rate = learning_rate, .loss_scale = run_->last_scale});
}

Underflow Trainer::underflow(const Batch& batch) {
    const Ranks::Alone alone(plan().options().ranks);
    return mantissa::underflow(run_->execution, batch, run_->steps);
}

void Trainer::look_into(const Batch& batch, FunctionRef<void(Execution&)> look) {
    const Ranks::Alone alone(plan().options().ranks);
    run_->execution.clear_gradients();
    look(run_->execution.prepare(batch, {.step = run_->steps, .index = plan().options().accumulate - 1}));
}

}  // namespace mantissa
