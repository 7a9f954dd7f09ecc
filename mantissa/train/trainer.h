// A model in training: step after step on batches that it is given, each of them whole or leaving no trace.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "mantissa/runtime/non_finite.h"
#include "mantissa/runtime/underflow.h"
#include "mantissa/train/gradients.h"
#include "mantissa/train/step_execution.h"

namespace mantissa::inline v0 {

struct StepResult {
    float loss = 0;           ///< before the update, the mean over the micro-steps
    float gradient_norm = 0;  ///< before clipping
    /// False: the loss of a micro-step, or an element of the gradients, was not finite; nothing changed.
    bool applied = false;
    double seconds = 0;
};

class Trainer {
  public:
    /// Plans the step, takes its memory and draws the initial parameters. Throws UserError if the model is
    /// none (nn/model.h), or, saying what is needed and what there is, if it does not fit the memory.
    Trainer(Device& device, nn::Model model, TrainerOptions options = {});
    /// The same with a plan that was made before.
    explicit Trainer(TrainingPlan plan);
    /// In memory that it shares with others, whose parameters it takes as they are.
    Trainer(TrainingPlan plan, std::shared_ptr<TrainingMemory> memory);

    /// One step on the values [N, B, ...] of each input of the model. With a profile, times each kernel of
    /// the last micro-step and the update. Throws UserError, naming the input, if the batch does not fit.
    StepResult step(const Batch& batch, double learning_rate, Profile* profile = nullptr);

    /// The same in two parts: what the host does in between, it does while the device works.
    void start(const Batch& batch, double learning_rate);
    StepResult finish();
    /// Between the two: gives the inputs of the next step, to be on their way while this one works. The next
    /// step must be one on that batch.
    void bring(const Batch& next);

    /// The same as `step` with each micro-step run by `run`, which must run it to its end or start it, as to
    /// look at it on the way. `last`: the update is in it, too.
    StepResult step_run_by(const Batch& batch, double learning_rate,
                           FunctionRef<void(Execution& micro_step, bool last)> run);

    /// A step that stops at its gradients, to be read where they lie; nothing was updated. Then `update`
    /// makes the update with that rate; any other step lets them go. Throws UserError where states are
    /// sharded.
    const Gradients& gradients(const Batch& batch);
    StepResult update(double learning_rate);

    /// Goes on with other options, planned anew: another policy, batch or optimizer. What both have of
    /// parameters, running statistics and the optimizer's states is kept, all else begins as it would in a
    /// new trainer. What was bound to `state()`, such as a Predictor, is to be made anew.
    void change(TrainerOptions options);

    /// The loss of the values [n, ...] of each input, nothing random, for any n whose activations fit the
    /// memory; changes nothing. Another n than B and than that of the call before is planned anew.
    float evaluate(const Batch& batch) { return execution_.evaluate(batch); }

    using LossScaleState = StepExecution::LossScaleState;
    /// The loss scale of the next step, and how many steps it made skip; 1 and 0 without one.
    LossScaleState loss_scale() const { return execution_.loss_scale(); }

    /// Runs the step just made once more, operation by operation, to name the first number that was not
    /// finite; for a step that was not applied, and with the same arguments. Changes nothing. Of ranks, each
    /// looks at its own micro-steps.
    std::optional<NonFinite> first_non_finite(const Batch& batch, double learning_rate);

    /// How much of the gradients a 16-bit policy loses at the loss scale of the next step, found by the same
    /// step at a greater one. Changes no state.
    Underflow underflow(const Batch& batch);

    /// Gives the inputs of a step and hands its last micro-step to `look`, which runs as much of it as it
    /// wants to see, and no update.
    void look_into(const Batch& batch, FunctionRef<void(Execution&)> look);

    /// Steps since the first one ever, those before a resume included.
    std::int64_t steps_done() const { return steps_; }
    /// Goes on after so many steps, as after a resume: random numbers follow the count.
    void continue_after(std::int64_t steps) { steps_ = steps; }

    const TrainingPlan& plan() const { return execution_.plan(); }
    const nn::Model& model() const { return plan().model(); }
    StateBlock& state() const { return execution_.state(); }

  private:
    void start_by(const Batch& batch, double learning_rate,
                  FunctionRef<void(Execution& micro_step, bool last)> run);

    StepExecution execution_;
    std::optional<Gradients> gradients_;  // at which a step stopped
    std::unique_ptr<Event> begin_, end_;  // of the step that was started; no end: none was
    std::int64_t steps_ = 0;
    float last_scale_ = 1;  // the loss scale that the last step ran with
    bool applied_ = true;   ///< the last step
};

}  // namespace mantissa
