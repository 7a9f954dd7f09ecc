// A training step bound to memory: runs its micro-batches, keeps what is derived from parameters current, and
// reads and writes the states that belong to the loop.
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

/// The parts that steps of one model may share: their states, and an arena for the largest of them.
struct TrainingMemory {
    std::unique_ptr<StateBlock> state;
    std::shared_ptr<DeviceMemory> arena;
    /// The derived states that follow from the parameters, by name, and whose they are; see
    /// StepExecution::derive.
    std::string derived = {};
    std::int64_t derived_after = -1;  ///< writes of the state when they were made
};

/// Memory for steps that run one after another on one state: every state that one of them has, zero, and an
/// arena for the largest. Throws UserError, saying what is needed and what there is, if it does not fit.
std::shared_ptr<TrainingMemory> allocate_training_memory(std::span<const TrainingPlan* const> plans);

/// A micro-batch of a run.
struct MicroBatch {
    std::int64_t step = 0;   ///< random numbers follow it
    std::int64_t index = 0;  ///< of the micro-batch
    double learning_rate = 0;
};

/// The metrics among the results of a run.
Metrics metrics_of(const Execution& execution);

class StepExecution {
  public:
    /// States of the plan that the memory lacks are its own. Throws UserError if memory for these
    /// does not suffice, and for a weight among them.
    StepExecution(TrainingPlan plan, std::shared_ptr<TrainingMemory> memory);
    /// Takes what the plan needs of the memory's arena, which may be another now.
    void bind();
    /// Makes room for a plan in the memory's arena. Who was bound to it is to be bound anew where this is
    /// true.
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
    /// Makes the derived states anew where somebody else wrote what they follow from.
    void derive();
    /// The last micro-batch with the loss scale of TrainingPlan::scaled_up, given its inputs.
    Execution prepare_scaled_up(const Batch& batch, const MicroBatch& micro_batch);
    /// The execution of the last micro-batch, which holds the results.
    const Execution& last() const { return *step_; }

    /// As Trainer::evaluate.
    Evaluation evaluate(const Batch& batch);

    LossScaleState loss_scale() const;
    /// Writes the dynamic loss scale; nothing where there is none.
    void write_loss_scale(float scale);
    /// Makes the gradients that were added up zero: the last micro-batch alone is then a step of its own.
    void clear_gradients();

  private:
    Execution& execution_of(std::int64_t index) const;
    void give(Execution& execution, const Batch& batch, const MicroBatch& micro_batch);
    void give_part(Execution& execution, const Batch& batch, std::int64_t index) const;
    /// The forward pass alone, for batches of a shape.
    struct ShapedForward {
        BatchShape shape;
        nn::Model model;
        std::vector<IdRange> ids;
        std::shared_ptr<DeviceMemory> arena;  // in which it may be bound
        std::unique_ptr<Forward> forward;
    };
    /// Made when it is first asked for.
    ShapedForward& evaluation_of(const BatchShape& shape);

    TrainingPlan plan_;
    std::shared_ptr<TrainingMemory> memory_;
    std::unique_ptr<StateBlock> own_;      // states that the memory lacks, and all of the memory's
    std::shared_ptr<DeviceMemory> arena_;  // to which it is bound
    std::unique_ptr<Execution> step_, derive_;
    std::vector<std::unique_ptr<Execution>> accumulate_;  // as TrainingPlan::accumulate
    std::list<ShapedForward> evaluations_;                // the last used first
    std::string derived_;                                 // as TrainingMemory::derived
    std::int64_t brought_ = -1;                           // the step whose first inputs were given ahead
};

}  // namespace mantissa
