#include "mantissa/train/training_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>

#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/ignored_targets.h"
#include "mantissa/nn/lora.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/ranks/ranks.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/accumulate.h"
#include "mantissa/train/ema.h"
#include "mantissa/train/loss_scale.h"
#include "mantissa/train/optimizer_update.h"

namespace mantissa::inline v0 {

namespace {

/// The input that a value's ids come from, directly or with one id put aside.
struct GivenIds {
    NodeId input = -1;  ///< -1: no input
    std::optional<std::int64_t> ignored = {};
};

/// c of `equal(x, c)`, or of its negation by a `select`; none for other conditions.
std::optional<std::int64_t> id_compared(const Graph& graph, Value condition) {
    const Node* node = &graph.node(condition.node);
    if (node->op->name == "select") node = &graph.node(node->inputs[0].node);
    if (node->op->name != "equal") return {};
    for (const Value input : node->inputs)
        if (const Node& constant = graph.node(input.node); constant.op->name == "constant")
            return std::llround(constant.attributes.number("value"));
    return {};
}

GivenIds given_ids(const Graph& graph, Value value) {
    GivenIds given;
    for (;;) {
        const Node& node = graph.node(value.node);
        const std::string_view op = node.op->name;
        if (op == "input") {
            given.input = value.node;
            return given;
        }
        if (op == "reshape" || op == "transpose" || op == "slice") {
            value = node.inputs[0];
        } else if (op == "select" && !given.ignored) {
            // ops::cross_entropy puts `ignore_index` aside in this way: it replaces it by another id.
            given.ignored = id_compared(graph, node.inputs[0]);
            if (!given.ignored) return {};
            const bool second = graph.node(node.inputs[1].node).op->name == "constant";
            value = node.inputs[second ? 2 : 1];
        } else {
            return {};
        }
    }
}

std::optional<IdRange> range_of(const Graph& graph, const Node& node) {
    if (node.op->name == "embedding") return IdRange{.limit = graph.type(node.inputs[0]).shape[0]};
    if (node.op->name == "cross_entropy")
        return IdRange{.limit = graph.type(node.inputs[0]).shape[-1],
                       .may_be_negative = ignores_negative(node.attributes),
                       .is_target = true};
    return std::nullopt;
}

[[noreturn]] void refuse(const IdRange& range, std::int32_t id, std::size_t position) {
    throw UserError(fmt::format(
        "{}: {} {} at position {} is out of range, expected 0 to {}{}; {}, or was the text tokenized with "
        "another "
        "vocabulary?",
        range.is_target ? "cross_entropy" : "embedding", range.is_target ? "target" : "id", id, position,
        range.limit - 1, range.ignored ? fmt::format(", or {}", *range.ignored) : "",
        range.is_target ? "are there more classes than scores" : "is the table too short"));
}

}  // namespace

std::vector<IdRange> id_ranges(const Graph& traced) {
    std::vector<IdRange> ranges;
    for (NodeId id = 0; id < traced.end(); ++id) {
        const Node& node = traced.node(id);
        std::optional<IdRange> range = range_of(traced, node);
        if (!range) continue;
        const GivenIds ids = given_ids(traced, node.inputs[1]);
        if (ids.input < 0) continue;
        range->input = traced.node(ids.input).attributes.word("name");
        range->ignored = ids.ignored;
        if (ids.ignored) range->may_be_negative = false;
        ranges.push_back(std::move(*range));
    }
    return ranges;
}

void check_ids(const std::vector<IdRange>& ranges, const nn::Model& model, const Batch& batch) {
    for (const IdRange& range : ranges) {
        const auto input = std::ranges::find(model.inputs, range.input, &nn::InputSpec::name);
        if (input == model.inputs.end() || input->dtype != DType::i32) continue;
        const std::span<const std::byte> bytes =
            batch.values()[static_cast<std::size_t>(input - model.inputs.begin())].bytes;
        const std::span ids(reinterpret_cast<const std::int32_t*>(bytes.data()),
                            bytes.size() / sizeof(std::int32_t));
        for (std::size_t i = 0; i < ids.size(); ++i) {
            const bool known = ids[i] < range.limit && (ids[i] >= 0 || range.may_be_negative);
            if (!known && range.ignored != ids[i]) refuse(range, ids[i], i);
        }
    }
}

namespace {

void validate(const TrainerOptions& options, const Device& device) {
    if (options.batch < 1) throw UserError(fmt::format("the batch must be 1 or more, got {}", options.batch));
    if (options.accumulate < 1)
        throw UserError(
            fmt::format("the micro-batches of a step must be 1 or more, got {}", options.accumulate));
    if (options.last_batch < 0)
        throw UserError(
            fmt::format("the last micro-batch has 1 example or more, got {}", options.last_batch));
    if (options.lora && !options.frozen.empty())
        throw UsageError("`lora` freezes all weights but the adapters': leave `frozen` out");
    if (options.lora && has_codes(options.lora->trunk)) {
        if (const std::string& why = device.target().cannot_widen_codes; !why.empty()) throw UserError(why);
        if (options.policy.blocks || options.policy.low == DType::f16 || !options.policy.emulate.empty())
            throw UserError(fmt::format(
                "a trunk in {} is widened to f32 or bf16, which {} does not multiply; take the policy bf16, "
                "fp32 or tf32",
                name_of(options.lora->trunk), options.policy.name));
    }
    const bool has_parts = options.ranks && options.ranks->size() > 1 && options.states == States::sharded;
    if (options.ema_decay > 0 && has_parts)
        throw UserError(
            "averaged weights are kept whole, and ranks with sharded states have parts of parameters: set "
            "`states` to States::whole");
}

/// The options of a step on so many examples, in as few micro-batches of at most B as possible.
TrainerOptions options_for(TrainerOptions options, std::int64_t examples) {
    if (options.accumulate == 1) {
        options.batch = examples;
        return options;
    }
    options.batch = std::min(options.batch, examples);
    options.accumulate = (examples + options.batch - 1) / options.batch;
    options.last_batch = examples % options.batch;
    return options;
}

}  // namespace

std::int64_t TrainerOptions::micro_batches() const { return accumulate * (ranks ? ranks->size() : 1); }
BatchOptions TrainerOptions::batches(BatchOrder order) const {
    return {.batch = batch, .accumulate = micro_batches(), .order = order, .seed = seed};
}
std::int64_t TrainerOptions::first_micro_batch() const { return accumulate * (ranks ? ranks->rank() : 0); }

TrainingPlan::TrainingPlan(Device& device, nn::Model model, TrainerOptions options)
    : device_(&device), model_(std::move(model)), options_(std::move(options)) {
    validate(options_, device);
    model_ = options_.lora ? nn::with_adapters(std::move(model_), *options_.lora, options_.policy.low)
                           : nn::without_adapters(std::move(model_));
    const Traced& first = traced(last_batch());
    facts_ = nn::facts_of(model_, last_batch(), options_.frozen, *first.graph, first.loss);
    random_runs_ = options_.micro_batches();
    build_all();
}

TrainingPlan::TrainingPlan(const TrainingPlan& like, const BatchShape& shape, const StateBlock& states)
    : device_(like.device_),
      model_(in_shape(like.model_, shape)),
      facts_(like.facts_),
      options_(options_for(like.options_, shape.examples)),
      states_(&states),
      random_runs_(std::max(like.random_runs_, options_.micro_batches())) {
    options_.dump = {};
    build_all();
    states_ = nullptr;
}

const TrainingPlan::Traced& TrainingPlan::traced(std::int64_t examples) {
    if (const auto known = traced_.find(examples); known != traced_.end()) return known->second;
    const auto graph = std::make_shared<Graph>();
    graph->freeze(options_.frozen);
    const Tensor loss = nn::trace_loss(model_, *graph, examples, nn::Mode::training(*graph));
    return traced_.emplace(examples, Traced{graph, loss.value()}).first->second;
}

/// Loss and metrics of a micro-batch, weighted by its share of the step's examples. If all micro-batches have
/// one size, this divides by their number, as loops in PyTorch do.
TraceModel TrainingPlan::trace_micro_batch(std::int64_t examples) {
    return [this, examples](Graph& graph) {
        const Traced& made = traced(examples);
        graph = *made.graph;
        const Tensor loss(graph, made.loss);
        const OriginScope scope(graph, "loss");
        const std::int64_t N = options_.micro_batches();
        if (N == 1) return loss;
        const double share = last_batch() == options_.batch
                                 ? 1.0 / static_cast<double>(N)
                                 : static_cast<double>(examples) / static_cast<double>(examples_per_step());
        for (const Result& metric : graph.take_results())
            graph.add_result(metric.name, (Tensor(graph, metric.value) * share).value());
        return loss * share;
    };
}

void TrainingPlan::build_all() {
    const Stopwatch watch;
    settle_pipeline();
    const TraceUpdate optimizer =
        with_average(optimizer_update(options_.optimizer, options_.loss_scale, pipeline_.distribution),
                     options_.ema_decay);
    const TraceUpdate update = with_added_gradients(optimizer, options_.accumulate, pipeline_.distribution,
                                                    options_.optimizer.may_be_cut);
    id_ranges_ = mantissa::id_ranges(*traced(last_batch()).graph);
    step_ = build(last_batch(), update, pipeline_);
    for (int level = 0; level < kept_levels(options_.accumulate); ++level) {
        PipelineOptions pipeline = pipeline_;
        if (pipeline.dump)
            pipeline.dump = [show = pipeline.dump, level](const std::string& pass, const Graph& graph) {
                show(fmt::format("accumulate-{}-{}", level, pass), graph);
            };
        accumulate_.push_back(build(
            options_.batch, add_to_gradients(level, options_.accumulate, pipeline.distribution), pipeline));
    }
    build_milliseconds_ = watch.milliseconds();
    if (options_.policy.needs_loss_scale() && options_.loss_scale.kind != LossScaleOptions::Kind::dynamic)
        scaled_up_ = plan_scaled_up(update);
    traced_.clear();
    shape_.examples = examples_per_step();
    for (const nn::InputSpec& input : model_.inputs) shape_.inputs.push_back(input.shape);
}

/// Turns the options into requests to the pipeline, with the loss scale as the seed of the backward pass.
void TrainingPlan::settle_pipeline() {
    if (!options_.passes) options_.passes = runnable_passes(device_->target(), options_.policy);
    if (options_.loss_scale.kind == LossScaleOptions::Kind::by_policy)
        options_.loss_scale = default_loss_scale(options_.policy);
    pipeline_ = {.policy = options_.policy,
                 .recompute = options_.recompute,
                 .distribution = {.ranks = options_.ranks ? options_.ranks->size() : 1,
                                  .bucket_bytes = options_.bucket_bytes,
                                  .states = options_.states,
                                  .wire = options_.wire},
                 .dump = options_.dump};
    choose_passes(pipeline_, *options_.passes);
    if (options_.loss_scale.kind != LossScaleOptions::Kind::none)
        pipeline_.seed = [scaling = options_.loss_scale](Graph& graph) {
            return mantissa::loss_scale(graph, scaling);
        };
}

/// The last micro-batch with a larger loss scale, where the scale is part of the plan.
std::unique_ptr<Plan> TrainingPlan::plan_scaled_up(const TraceUpdate& update) {
    PipelineOptions pipeline = pipeline_;
    pipeline.dump = {};
    pipeline.seed = [scale = pipeline.seed](Graph& graph) {
        return scale ? scale(graph) * far_above : constant(graph, far_above);
    };
    BuiltGraph step =
        build_training_step(trace_micro_batch(last_batch()), update, pipeline, machine_for_passes(*device_));
    return std::make_unique<Plan>(std::move(step.graph), *device_, options_.make_kernels);
}

std::unique_ptr<Plan> TrainingPlan::build(std::int64_t examples, const TraceUpdate& update,
                                          const PipelineOptions& pipeline) {
    const TraceModel trace = trace_micro_batch(examples);
    BuiltGraph step = build_training_step(trace, update, pipeline, machine_for_passes(*device_));
    if (states_ && states_->lacks_zeros(step.graph.states())) {
        pipeline_.pad = false;
        step = build_training_step(trace, update, pipeline_, machine_for_passes(*device_));
    }
    pass_times_.insert(pass_times_.end(), step.times.begin(), step.times.end());
    const Stopwatch planning;
    // The first graph built updates the parameters. The others have its layers, its padding and its derived
    // states.
    if (!step_) {
        refused_ = std::move(step.refused);
        padded_ = std::move(step.padded);
        recomputed_flops_per_example_ =
            static_cast<double>(step.recomputed_flops) / static_cast<double>(examples);
        pipeline_.distribution.sharded = std::move(step.sharded);
        if (!step.derive.states().empty())
            derive_ = std::make_unique<Plan>(std::move(step.derive), *device_, options_.make_kernels);
    }
    auto plan = std::make_unique<Plan>(std::move(step.graph), *device_, options_.make_kernels);
    pass_times_.push_back({"choose kernels, plan memory", planning.milliseconds(), plan->graph().size()});
    return plan;
}

MemoryUse TrainingPlan::memory() const {
    MemoryUse use{.state = step_->memory().state_bytes,
                  .arena = step_->memory().arena_bytes,
                  .inputs = step_->input_bytes(),
                  .exchange = options_.ranks ? options_.ranks->bytes() : 0};
    if (scaled_up_) use.arena = std::max(use.arena, scaled_up_->memory().arena_bytes);
    for (const std::unique_ptr<Plan>& before : accumulate_) {
        // Its states are among the states of `step_`.
        use.state += before->constant_bytes();
        use.arena = std::max(use.arena, before->memory().arena_bytes);
        use.inputs += before->input_bytes();
    }
    return use;
}

}  // namespace mantissa
