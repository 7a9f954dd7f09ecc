#include "mantissa/train/trainer.h"

#include "mantissa/base/error.h"
#include "mantissa/ranks/ranks.h"
#include "mantissa/train/diagnosis.h"

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

Trainer::Trainer(Device& device, nn::Model model, TrainerOptions options)
    : Trainer(TrainingPlan(device, std::move(model), std::move(options))) {}

Trainer::Trainer(TrainingPlan plan) : execution_(execution_of(std::move(plan))) {}

Trainer::Trainer(TrainingPlan plan, std::shared_ptr<TrainingMemory> memory)
    : execution_(std::move(plan), std::move(memory)) {}

StepResult Trainer::step(const Batch& batch, double learning_rate, Profile* profile) {
    if (!profile) {
        start(batch, learning_rate);
        return finish();
    }
    return step_run_by(batch, learning_rate,
                       [&](Execution& execution, bool last) { execution.run(last ? profile : nullptr); });
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
    require_fit(batch, model(), plan().examples_per_step());
    // What a step that went no further than its gradients kept of its micro-steps is no part of this one.
    if (gradients_ && plan().options().accumulate > 1) execution_.clear_gradients();
    gradients_.reset();
    last_scale_ = static_cast<float>(loss_scale().scale);
    execution_.derive();
    begin_ = plan().device().record();
    const std::int64_t last = plan().options().accumulate - 1;
    try {
        for (std::int64_t index = 0; index <= last; ++index)
            run(execution_.prepare(batch, {.step = steps_, .index = index, .learning_rate = learning_rate}),
                index == last);
    } catch (...) {
        // Gradients on their way lie in memory that may go with what is thrown.
        if (Ranks* const ranks = plan().options().ranks) ranks->settle();
        throw;
    }
    end_ = plan().device().record();
}

const Gradients& Trainer::gradients(const Batch& batch) {
    std::optional<Gradients> stopped;
    start_by(batch, 0, [&](Execution& execution, bool last) {
        if (last)
            stopped.emplace(execution, last_scale_);
        else
            execution.run();
    });
    gradients_ = std::move(stopped);
    return *gradients_;
}

StepResult Trainer::update(double learning_rate) {
    if (!gradients_) throw UserError("there is no step to update by: ask for its gradients first");
    gradients_->update(static_cast<float>(learning_rate));
    gradients_.reset();
    end_ = plan().device().record();
    return finish();
}

void Trainer::change(TrainerOptions options) {
    StepExecution next = execution_of({plan().device(), model(), std::move(options)});
    for (const State& each : next.state().states())
        if ((is_weight(each) || each.kind == State::Kind::optimizer) && state().has(each.name) &&
            state().type(each.name) == each.type)
            next.state().write(each.name, state().read(each.name));
    gradients_.reset();
    end_.reset();
    execution_ = std::move(next);
}

void Trainer::bring(const Batch& next) {
    require_fit(next, model(), plan().examples_per_step());
    execution_.bring(next, steps_ + 1);
}

StepResult Trainer::finish() {
    check(end_ != nullptr, "a step that was started is finished");
    Device& device = plan().device();
    device.wait(*end_);  // the only time in a step that the host waits
    StepResult result;
    result.seconds = device.seconds_between(*begin_, *end_);
    end_.reset();
    result.loss = execution_.last().read_scalar("loss");
    result.gradient_norm = execution_.last().read_scalar("gradient_norm");
    result.applied = execution_.last().read_result("applied")[0] != std::byte{0};
    applied_ = result.applied;
    ++steps_;
    return result;
}

std::optional<NonFinite> Trainer::first_non_finite(const Batch& batch, double learning_rate) {
    check(!applied_, "a step that was applied would be applied again");
    const Ranks::Alone alone(plan().options().ranks);
    return mantissa::first_non_finite(
        execution_, batch, {.step = steps_ - 1, .learning_rate = learning_rate, .loss_scale = last_scale_});
}

Underflow Trainer::underflow(const Batch& batch) {
    const Ranks::Alone alone(plan().options().ranks);
    return mantissa::underflow(execution_, batch, steps_);
}

void Trainer::look_into(const Batch& batch, FunctionRef<void(Execution&)> look) {
    const Ranks::Alone alone(plan().options().ranks);
    execution_.clear_gradients();
    look(execution_.prepare(batch, {.step = steps_, .index = plan().options().accumulate - 1}));
}

}  // namespace mantissa
