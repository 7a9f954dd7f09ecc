// A training step bound to memory: runs its micro-batches, keeps derived states current, and reads and writes
// the states of the training loop.
#pragma once

#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mantissa/data/batch.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

class Forward;

/// Memory that steps of one model may share: their states, and an arena for the largest step.
struct TrainingMemory {
    std::unique_ptr<StateBlock> state;
    std::shared_ptr<DeviceMemory> arena;
    /// Names of the current derived states, and their owner; see StepExecution::derive.
    std::string derived = {};
    std::int64_t derived_after = -1;  ///< count of state writes when they were made
};

/// Memory for steps that run one after another on one state: every state of any of them, zero, and an arena
/// for the largest. Throws UserError, saying the bytes needed and available, if it does not fit.
std::shared_ptr<TrainingMemory> allocate_training_memory(std::span<const TrainingPlan* const> plans);

/// A micro-batch of a run.
struct MicroBatch {
    std::int64_t step = 0;   ///< decides the random numbers
    std::int64_t index = 0;  ///< of the micro-batch
    double learning_rate = 0;
};

/// The metrics among the results of a run.
Metrics metrics_of(const Execution& execution);

class StepExecution {
  public:
    /// The step owns states of the plan that the memory lacks. Throws UserError if memory for these does not
    /// suffice, or if one of them is a weight.
    StepExecution(TrainingPlan plan, std::shared_ptr<TrainingMemory> memory);
    /// Binds the plan to the memory's arena, which may have been replaced.
    void bind();
    /// Makes room for a plan in the memory's arena. True: the arena was replaced, and every execution in it
    /// must be bound anew.
    static bool make_room(TrainingMemory& memory, const TrainingPlan& plan);
    ~StepExecution();
    StepExecution(StepExecution&&) noexcept;
    StepExecution& operator=(StepExecution&&) noexcept;

    const TrainingPlan& plan() const { return plan_; }
    StateBlock& state() const { return *memory_->state; }
    const std::shared_ptr<TrainingMemory>& memory() const { return memory_; }

    /// The execution of a micro-batch, given its part of the batch [N, B, ...], the step's random numbers and
    /// its rate. Throws UserError if the batch does not fit the model.
    Execution& prepare(const Batch& batch, const MicroBatch& micro_batch);
    /// Gives the inputs of a step's first micro-batch ahead of `prepare`.
    void bring(const Batch& batch, std::int64_t step);
    void forget_brought() { brought_ = -1; }
    /// Makes the derived states anew after another owner's parameters or derived states were written.
    void derive();
    /// The last micro-batch with the loss scale of TrainingPlan::scaled_up, given its inputs.
    Execution prepare_scaled_up(const Batch& batch, const MicroBatch& micro_batch);
    /// The execution of the last micro-batch, which holds the results.
    const Execution& last() const { return *step_; }

    Evaluation evaluate(const Batch& batch);

    LossScaleState loss_scale() const;
    /// Writes the dynamic loss scale, if there is one.
    void write_loss_scale(float scale);
    /// Zeroes the accumulated gradients: the last micro-batch alone is then a step of its own.
    void clear_gradients();

  private:
    Execution& execution_of(std::int64_t index) const;
    void give(Execution& execution, const Batch& batch, const MicroBatch& micro_batch);
    void give_part(Execution& execution, const Batch& batch, std::int64_t index) const;
    /// The forward pass alone, for batches of one shape.
    struct ShapedForward {
        BatchShape shape;
        nn::Model model;
        std::vector<IdRange> ids;
        std::shared_ptr<DeviceMemory> arena;  // may hold its activations
        std::unique_ptr<Forward> forward;
    };
    /// Made at the first call.
    ShapedForward& evaluation_of(const BatchShape& shape);

    TrainingPlan plan_;
    std::shared_ptr<TrainingMemory> memory_;
    std::unique_ptr<StateBlock> own_;      // states that the memory lacks, and all of the memory's
    std::shared_ptr<DeviceMemory> arena_;  // the arena that it is bound to
    std::unique_ptr<Execution> step_, derive_;
    std::vector<std::unique_ptr<Execution>> accumulate_;  // as TrainingPlan::accumulate
    std::list<ShapedForward> evaluations_;                // the last used first
    std::string derived_;                                 // as TrainingMemory::derived
    std::int64_t brought_ = -1;                           // the step with first inputs given ahead
};

}  // namespace mantissa
