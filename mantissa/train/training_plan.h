// The plans of a training step: built and placed on a device, with nothing allocated. What a step takes, and
// what it would run, is known from here on.
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

/// The range of the ids that a model is given: rows of tables, and classes. It is read off the trace and
/// checked on the host, since kernels that are fused, or run on a GPU, compare ids and refuse none.
struct IdRange {
    std::string input = {};
    std::int64_t limit = 0;                    ///< ids are below it
    bool may_be_negative = false;              ///< a target below 0 is none
    std::optional<std::int64_t> ignored = {};  ///< an id besides, which is put aside before
    bool is_target = false;                    ///< of a cross-entropy; else ids of an embedding
};

/// Those of the inputs of a traced forward pass that name rows or classes.
std::vector<IdRange> id_ranges(const Graph& traced);

/// Throws UserError, naming what is asked of the id and its position, for one out of its range.
void check_ids(const std::vector<IdRange>& ranges, const nn::Model& model, const Batch& batch);

/// Bytes that a trainer holds, as planned.
struct MemoryUse {
    std::int64_t state = 0;     ///< parameters, moments, gradients that are added up, constants
    std::int64_t arena = 0;     ///< activations, gradients, workspaces
    std::int64_t inputs = 0;    ///< tokens and scalars
    std::int64_t exchange = 0;  ///< gradients on their way to other ranks and back
    std::int64_t total() const { return state + arena + inputs + exchange; }
};

class TrainingPlan {
  public:
    /// Throws UserError for an invalid model (nn/model.h), or if batch or micro-batches are not positive or
    /// too large to count. Throws it, too, for names to freeze or to group that the model does not have.
    TrainingPlan(Device& device, nn::Model model, TrainerOptions options);
    /// The same step for batches of another shape, on states that are there. Throws UserError where a weight
    /// has another shape there.
    TrainingPlan(const TrainingPlan& like, const BatchShape& shape, const StateBlock& states);

    Device& device() const { return *device_; }
    const nn::Model& model() const { return model_; }
    const nn::ModelFacts& facts() const { return facts_; }
    /// With what was left to the plan filled in: passes and the loss scale.
    const TrainerOptions& options() const { return options_; }
    const PipelineOptions& pipeline() const { return pipeline_; }

    /// The last micro-batch and the update; the only one if nothing is accumulated.
    const Plan& step() const { return *step_; }
    /// The micro-batches before it, by the levels of the tree of sums that they complete (accumulate.h);
    /// empty if nothing is accumulated.
    const std::vector<std::unique_ptr<Plan>>& accumulate() const { return accumulate_; }
    /// Makes the derived states from the parameters; null: nothing is derived.
    const Plan* derive() const { return derive_.get(); }
    /// The last micro-batch with a loss scale that is greater by `far_above`, to see what underflows; null
    /// where the scale is a state, or none is needed.
    const Plan* scaled_up() const { return scaled_up_.get(); }
    /// Times a loss scale: what is lost there as well would be lost at any, since FP16's normal numbers span
    /// 2^30.
    static constexpr double far_above = 1024;

    MemoryUse memory() const;
    /// Examples of this rank.
    std::int64_t examples_per_step() const {
        return (options_.accumulate - 1) * options_.batch + last_batch();
    }
    /// Examples of the last micro-batch.
    std::int64_t last_batch() const { return options_.last_batch ? options_.last_batch : options_.batch; }
    /// The shapes of batches for which it is.
    const BatchShape& shape() const { return shape_; }
    /// Random numbers of a step: as many runs of the stream, whatever the shape.
    std::int64_t random_runs() const { return random_runs_; }
    /// Tokens, images: what the model's throughput counts. Of all ranks.
    std::int64_t units_per_step() const {
        return options_.micro_batches() / options_.accumulate * examples_per_step() *
               model_.units_per_example;
    }
    /// FLOPs of this rank, by the model: what is computed again does not count.
    double flops_per_step() const {
        return facts_.flops_per_example * static_cast<double>(examples_per_step());
    }
    /// Those of what is computed again.
    double recomputed_flops() const {
        return recomputed_flops_per_example_ * static_cast<double>(examples_per_step());
    }
    /// The ids that the model is given.
    const std::vector<IdRange>& id_ranges() const { return id_ranges_; }
    /// Milliseconds from tracing to the bound plan, without allocation.
    double build_milliseconds() const { return build_milliseconds_; }
    const std::vector<PassTime>& pass_times() const { return pass_times_; }
    /// The nodes that passes left as they were, and why; of step().
    const std::vector<PassRefusal>& refused() const { return refused_; }
    /// Parameters that lie padded; empty unless padding was asked for.
    const std::vector<PaddedParameter>& padded() const { return padded_; }

  private:
    /// A trace of the model's loss on so many examples, which is made once.
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
    const StateBlock* states_ = nullptr;     ///< that are there, while plans are made
    std::int64_t random_runs_ = 1;
    BatchShape shape_;
    double build_milliseconds_ = 0, recomputed_flops_per_example_ = 0;
};

}  // namespace mantissa
