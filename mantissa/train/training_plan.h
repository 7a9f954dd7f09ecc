// The plans of a training step: built and placed on a device, with nothing allocated. They tell the memory
// that a step takes and the kernels that it would run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/data/batch.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/model.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/runtime/plan.h"
#include "mantissa/train/trainer.h"

namespace mantissa::inline v0 {

/// The range of an input's ids: rows of tables, and classes. It is read off the trace and checked on the
/// host, since fused kernels and GPU kernels do not check ids.
struct IdRange {
    std::string input = {};
    std::int64_t limit = 0;                    ///< ids are below it
    bool may_be_negative = false;              ///< a target below 0 counts as none
    std::optional<std::int64_t> ignored = {};  ///< another allowed id, replaced before use
    bool is_target = false;                    ///< of a cross-entropy; else ids of an embedding
};

/// The inputs of a traced forward pass that hold ids of rows or classes.
std::vector<IdRange> id_ranges(const Graph& traced);

/// Throws UserError, naming the input, the allowed range and the position, for an id out of range.
void check_ids(const std::vector<IdRange>& ranges, const nn::Model& model, const Batch& batch);

/// Bytes that a trainer holds, as planned.
struct MemoryUse {
    std::int64_t state = 0;     ///< parameters, moments, accumulated gradients, constants
    std::int64_t arena = 0;     ///< activations, gradients, workspaces
    std::int64_t inputs = 0;    ///< tokens and scalars
    std::int64_t exchange = 0;  ///< gradients in transit to other ranks and back
    std::int64_t total() const { return state + arena + inputs + exchange; }
};

class TrainingPlan {
  public:
    /// Throws UserError for an invalid model (nn/model.h), for batch or micro-batches that are not positive
    /// or too large to count, and for names to freeze or to group that the model lacks.
    TrainingPlan(Device& device, nn::Model model, TrainerOptions options);
    /// The step for batches of another shape, on existing states. Throws UserError where a weight would have
    /// another shape.
    TrainingPlan(const TrainingPlan& like, const BatchShape& shape, const StateBlock& states);

    Device& device() const { return *device_; }
    const nn::Model& model() const { return model_; }
    const nn::ModelFacts& facts() const { return facts_; }
    /// The options, with passes and loss scale filled in if they were left open.
    const TrainerOptions& options() const { return options_; }
    const PipelineOptions& pipeline() const { return pipeline_; }

    /// The last micro-batch and the update; the only micro-batch if nothing is accumulated.
    const Plan& step() const { return *step_; }
    /// The earlier micro-batches, by the levels of the tree of sums that they complete (accumulate.h); empty
    /// if nothing is accumulated.
    const std::vector<std::unique_ptr<Plan>>& accumulate() const { return accumulate_; }
    /// The plan that makes the derived states from the parameters; null: nothing is derived.
    const Plan* derive() const { return derive_.get(); }
    /// The last micro-batch with a loss scale `far_above` times larger, to find values that underflow; null
    /// where the scale is a state, or there is none.
    const Plan* scaled_up() const { return scaled_up_.get(); }
    /// Factor of the loss scale: a value that is still lost at it would be lost at any scale, since FP16's
    /// normal numbers span 2^30.
    static constexpr double far_above = 1024;

    MemoryUse memory() const;
    /// Examples of this rank.
    std::int64_t examples_per_step() const {
        return (options_.accumulate - 1) * options_.batch + last_batch();
    }
    /// Examples of the last micro-batch.
    std::int64_t last_batch() const { return options_.last_batch ? options_.last_batch : options_.batch; }
    /// The batch shape of these plans.
    const BatchShape& shape() const { return shape_; }
    /// Runs of the random stream that a step uses, whatever its shape.
    std::int64_t random_runs() const { return random_runs_; }
    /// Units of the model's throughput, such as tokens or images, over all ranks.
    std::int64_t units_per_step() const {
        return options_.micro_batches() / options_.accumulate * examples_per_step() *
               model_.units_per_example;
    }
    /// FLOPs of this rank by the model, without recomputation.
    double flops_per_step() const {
        return facts_.flops_per_example * static_cast<double>(examples_per_step());
    }
    /// FLOPs of recomputation.
    double recomputed_flops() const {
        return recomputed_flops_per_example_ * static_cast<double>(examples_per_step());
    }
    /// Ranges of the model's input ids.
    const std::vector<IdRange>& id_ranges() const { return id_ranges_; }
    /// Milliseconds from tracing to the bound plan, without allocation.
    double build_milliseconds() const { return build_milliseconds_; }
    const std::vector<PassTime>& pass_times() const { return pass_times_; }
    /// The nodes of step() that passes left unchanged, and the reasons.
    const std::vector<PassRefusal>& refused() const { return refused_; }
    /// Padded parameters; empty unless padding was asked for.
    const std::vector<PaddedParameter>& padded() const { return padded_; }

  private:
    /// A trace of the model's loss on so many examples, made once.
    struct Traced {
        std::shared_ptr<const Graph> graph;
        Value loss;
    };
    void settle_pipeline();
    const Traced& traced(std::int64_t examples);
    TraceModel trace_micro_batch(std::int64_t examples);
    void build_all();
    std::unique_ptr<Plan> build(std::int64_t examples, const TraceUpdate& update,
                                const PipelineOptions& pipeline);
    std::unique_ptr<Plan> plan_scaled_up(const TraceUpdate& update);

    Device* device_;
    nn::Model model_;
    nn::ModelFacts facts_;
    TrainerOptions options_;
    PipelineOptions pipeline_;
    std::unique_ptr<Plan> step_, derive_, scaled_up_;
    std::vector<std::unique_ptr<Plan>> accumulate_;
    std::vector<PassTime> pass_times_;
    std::vector<PassRefusal> refused_;
    std::vector<PaddedParameter> padded_;
    std::vector<IdRange> id_ranges_;
    std::map<std::int64_t, Traced> traced_;  ///< by examples, while plans are made
    const StateBlock* states_ = nullptr;     ///< existing states, while plans are made
    std::int64_t random_runs_ = 1;
    BatchShape shape_;
    double build_milliseconds_ = 0, recomputed_flops_per_example_ = 0;
};

}  // namespace mantissa
