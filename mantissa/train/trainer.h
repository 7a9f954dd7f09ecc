// A model in training: the plans of its step, their one state, and the arena they run in.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "mantissa/nn/models/gpt2.h"
#include "mantissa/runtime/non_finite.h"
#include "mantissa/runtime/underflow.h"
#include "mantissa/train/adamw.h"

namespace mantissa {

struct TrainerOptions {
    nn::Gpt2Config model = {};
    std::int64_t batch = 4;       // B: sequences of a micro-step
    std::int64_t sequence = 256;  // T
    /// N: micro-steps of a step. Their gradients, each of loss / N, are added up before the update.
    std::int64_t accumulate = 1;
    std::uint64_t seed = 1337;
    AdamWOptions optimizer = {};
    LossScaleOptions loss_scale = {};
    PipelineOptions pipeline = {};  ///< with what pipeline_on() adds
};

struct StepResult {
    float loss = 0;           ///< before the update, the mean over the micro-steps
    float gradient_norm = 0;  ///< before clipping
    /// False: the loss of a micro-step, or an element of the gradients, was not finite; nothing changed.
    bool applied = false;
    double seconds = 0;
};

/// Bytes that a trainer holds, as planned.
struct MemoryUse {
    std::int64_t state = 0;   ///< parameters, moments, gradients that are added up, constants
    std::int64_t arena = 0;   ///< activations, gradients, workspaces
    std::int64_t inputs = 0;  ///< tokens and scalars
    std::int64_t total() const { return state + arena + inputs; }
};

/// What trainers of one model may share: their states, and an arena for the largest of them.
struct TrainingMemory {
    std::unique_ptr<StateBlock> state;
    std::unique_ptr<DeviceMemory> arena;
    const void* derived_by = nullptr;  ///< the trainer whose derived states follow from the parameters
};

class Trainer {
  public:
    /// Plans only. Throws UserError if batch, sequence or micro-steps are not positive or too large to count.
    Trainer(Device& device, TrainerOptions options);

    /// Allocates and initialises. Throws UserError, saying what is needed and what there is, if the plan does
    /// not fit the available memory. Called by the first step if not before.
    void allocate();
    /// Runs in memory that it shares with others, from allocate_training_memory().
    void share(std::shared_ptr<TrainingMemory> memory);

    /// One step on tokens and targets i32 [N, B, T]. With a profile, times each kernel of the last micro-step
    /// and the update.
    StepResult step(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                    double learning_rate, Profile* profile = nullptr);

    /// Runs the step just made once more, operation by operation, to name the first number that was not
    /// finite; for a step that was not applied, and with the same arguments. Changes nothing.
    std::optional<NonFinite> first_non_finite(std::span<const std::int32_t> tokens,
                                              std::span<const std::int32_t> targets, double learning_rate);

    /// The mean loss of tokens and targets i32 [B, T], dropout off; changes nothing.
    float validation_loss(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets);

    /// The loss scale of the next step, and how many steps it made skip; 1 and 0 without one.
    struct LossScaleState {
        double scale = 1;
        std::int64_t skipped = 0;
    };
    LossScaleState loss_scale() const;

    /// How much of the gradients a 16-bit policy loses at the loss scale of the next step, found by the same
    /// step at a greater one. Changes no state.
    Underflow underflow(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets);

    /// Gives the inputs of a step i32 [N, B, T] and hands its last micro-step to `look`, which runs as much
    /// of it as it wants to see, and no update.
    void look_into(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                   FunctionRef<void(Execution&)> look);

    /// Steps since the first one ever, those before a resume included.
    std::int64_t steps_done() const { return steps_; }
    /// Goes on after so many steps, as after a resume: random numbers follow the count.
    void continue_after(std::int64_t steps) { steps_ = steps; }

    const TrainerOptions& options() const { return options_; }
    /// Of the last micro-step and the update; of the only one if nothing is accumulated.
    const Plan& plan() const { return *plan_; }
    /// Of the micro-steps before it; null if nothing is accumulated.
    const Plan* accumulate_plan() const { return accumulate_plan_.get(); }
    StateBlock& state();
    MemoryUse memory() const;
    std::int64_t tokens_per_micro_step() const { return options_.batch * options_.sequence; }
    std::int64_t tokens_per_step() const { return options_.accumulate * tokens_per_micro_step(); }
    /// From tracing to the bound plan, without allocation.
    double build_milliseconds() const { return build_milliseconds_; }
    const std::vector<PassTime>& pass_times() const { return pass_times_; }
    /// What the passes left as it was, and why; of the plan of plan().
    const std::vector<PassRefusal>& refused() const { return refused_; }
    /// Parameters that lie padded; empty unless padding was asked for.
    const std::vector<PaddedParameter>& padded() const { return padded_; }

  private:
    std::unique_ptr<Plan> build(const TraceUpdate& update, const PipelineOptions& pipeline);
    /// Makes the derived states anew where somebody else wrote what they follow from.
    void derive();
    /// The execution of a micro-step, given its part of the tokens and the step's random numbers and rate.
    Execution& micro_step(std::int64_t index, std::span<const std::int32_t> tokens,
                          std::span<const std::int32_t> targets, double learning_rate);
    void give_inputs(Execution& execution, std::int64_t index, std::span<const std::int32_t> tokens,
                     std::span<const std::int32_t> targets, double learning_rate) const;
    std::unique_ptr<Plan> plan_scaled_up(const TraceUpdate& update) const;
    void clear_gradients();
    void write_loss_scale(float scale);

    TrainerOptions options_;
    Device& device_;
    std::unique_ptr<Plan> plan_;
    std::unique_ptr<Plan> accumulate_plan_;
    std::unique_ptr<Plan> validation_plan_;
    std::unique_ptr<Plan> derive_plan_;  // null: nothing is derived
    std::unique_ptr<Plan>
        scaled_up_plan_;  // to see what underflows; null where the scale is a state, or none is needed
    std::vector<PassTime> pass_times_;
    std::vector<PassRefusal> refused_;
    std::vector<PaddedParameter> padded_;
    double build_milliseconds_ = 0;
    std::shared_ptr<TrainingMemory> memory_;
    std::unique_ptr<DeviceMemory> validation_arena_;  // null where validation fits in that of training
    std::unique_ptr<Execution> execution_, accumulate_, validation_, derive_;
    std::int64_t steps_ = 0;
    std::int64_t derived_after_ = -1;  // writes of the state when the derived states were made
    float last_scale_ = 1;             // the loss scale that the last step ran with
    bool applied_ = true;              ///< the last step
};

/// Memory for several trainers that run one after another on one state: every state that one of them has,
/// zero, and an arena for the largest. Throws UserError, saying what is needed and what there is, if it does
/// not fit.
std::shared_ptr<TrainingMemory> allocate_training_memory(Device& device,
                                                         std::span<const Trainer* const> trainers);

}  // namespace mantissa
