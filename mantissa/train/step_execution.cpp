#include "mantissa/train/step_execution.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/metrics.h"
#include "mantissa/ranks/ranks.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/accumulate.h"
#include "mantissa/train/forward.h"

namespace mantissa::inline v0 {

namespace {

constexpr double gigabyte = 1e9;

void require_memory(const TrainingPlan& plan, const MemoryUse& memory) {
    const std::int64_t available = plan.device().free_memory();
    if (memory.total() <= available) return;
    const auto gigabytes = [](std::int64_t bytes) { return static_cast<double>(bytes) / gigabyte; };
    throw UsageError(fmt::format(
        "{} at {} needs {:.2f} GB ({:.2f} state, {:.2f} activations and gradients), {:.2f} GB are "
        "available; use a smaller `batch`, {} or `model`; explain prints what needs less, as `recompute` "
        "does",
        plan.model().name, nn::batch_text(plan.model(), plan.options().batch), gigabytes(memory.total()),
        gigabytes(memory.state), gigabytes(memory.arena), gigabytes(available),
        plan.model().unit == "images" ? "`image_size`" : "`sequence`"));
}

}  // namespace

float Metrics::operator[](std::string_view name) const {
    if (const auto found = by_name.find(name); found != by_name.end()) return found->second;
    std::vector<std::string_view> names;
    for (const auto& [each, value] : by_name) names.push_back(each);
    throw UserError(fmt::format("the loss names no metric '{}'; {}", name,
                                names.empty() ? "call nn::metric where it is recorded"
                                              : fmt::format("there are {}", fmt::join(names, ", "))));
}

Metrics metrics_of(const Execution& execution) {
    Metrics metrics;
    for (const Result& result : execution.plan().graph().results())
        if (nn::is_metric(result.name))
            metrics.by_name.emplace(result.name.substr(nn::metric_prefix.size()),
                                    execution.read_scalar(result.name));
    return metrics;
}

std::shared_ptr<TrainingMemory> allocate_training_memory(std::span<const TrainingPlan* const> plans) {
    std::vector<State> states;
    const TrainingPlan* largest = nullptr;
    for (const TrainingPlan* plan : plans)
        if (!largest || plan->memory().total() > largest->memory().total()) largest = plan;
    check(largest != nullptr, "memory is for one step or more");
    MemoryUse use = largest->memory();
    // One step may have the most states, another the largest arena.
    for (const TrainingPlan* plan : plans) {
        use.arena = std::max(use.arena, plan->memory().arena);
        for (const State& state : plan->step().graph().states()) {
            const auto same_name = [&](const State& other) { return other.name == state.name; };
            const auto known = std::find_if(states.begin(), states.end(), same_name);
            if (known != states.end()) {  // a step that does not pad reads only the first rows
                known->zero_rows = std::max(known->zero_rows, state.zero_rows);
                continue;
            }
            states.push_back(state);
            if (largest->step().graph().find_state(state.name) < 0)
                use.state += plan->step().aligned(state.stored_bytes());
        }
    }
    require_memory(*largest, use);
    auto memory = std::make_shared<TrainingMemory>();
    const Ranks* const ranks = largest->options().ranks;
    memory->state = std::make_unique<StateBlock>(largest->device(), states, ranks ? ranks->rank() : 0);
    memory->arena = largest->device().allocate(use.arena, "activations and gradients");
    return memory;
}

StepExecution::StepExecution(TrainingPlan plan, std::shared_ptr<TrainingMemory> memory)
    : plan_(std::move(plan)), memory_(std::move(memory)) {
    own_ = std::make_unique<StateBlock>(plan_.device(), plan_.step().graph().states(), *memory_->state);
    for (const State& state : own_->states())
        if (is_weight(state))
            throw UserError(
                fmt::format("model {}: '{}' is a weight on batches of this shape, and none on those that the "
                            "trainer was made "
                            "for; make it for a batch that uses all weights",
                            plan_.model().name, state.name));
    for (const State& state : plan_.step().graph().states())
        if (state.kind == State::Kind::derived) derived_ += state.name + " ";
    // Derived states of its own belong to no other step.
    if (!own_->states().empty()) derived_ += fmt::format("of {}", static_cast<const void*>(own_.get()));
    bind();
}

void StepExecution::bind() {
    arena_ = memory_->arena;
    const auto bound = [this](const Plan* of) {
        return of ? std::make_unique<Execution>(*of, *own_, *arena_) : nullptr;
    };
    accumulate_.clear();
    step_ = bound(&plan_.step());
    for (const std::unique_ptr<Plan>& before : plan_.accumulate()) accumulate_.push_back(bound(before.get()));
    derive_ = bound(plan_.derive());
    brought_ = -1;
}

bool StepExecution::make_room(TrainingMemory& memory, const TrainingPlan& plan) {
    const std::int64_t arena = plan.memory().arena;
    if (std::cmp_less_equal(arena, memory.arena->size())) return false;
    require_memory(plan, {.arena = arena, .inputs = plan.memory().inputs});
    memory.arena = plan.device().allocate(arena, "activations and gradients");
    return true;
}

StepExecution::~StepExecution() = default;
StepExecution::StepExecution(StepExecution&&) noexcept = default;

StepExecution& StepExecution::operator=(StepExecution&& other) noexcept {
    // Executions go before the plans and the memory that they use.
    evaluations_.clear();
    accumulate_.clear();
    step_.reset();
    derive_.reset();
    plan_ = std::move(other.plan_);
    own_ = std::move(other.own_);
    memory_ = std::move(other.memory_);
    arena_ = std::move(other.arena_);
    step_ = std::move(other.step_);
    derive_ = std::move(other.derive_);
    accumulate_ = std::move(other.accumulate_);
    evaluations_ = std::move(other.evaluations_);
    derived_ = std::move(other.derived_);
    brought_ = other.brought_;
    return *this;
}

void StepExecution::derive() {
    if (memory_->derived == derived_ && memory_->derived_after == memory_->state->writes()) return;
    if (derive_) derive_->start();
    memory_->derived = derived_;
    memory_->derived_after = memory_->state->writes();
}

void StepExecution::give_part(Execution& execution, const Batch& batch, std::int64_t index) const {
    const std::vector<nn::InputSpec>& inputs = plan_.model().inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const bool is_last = index + 1 == plan_.options().accumulate;
        const std::int64_t examples = is_last ? plan_.last_batch() : plan_.options().batch;
        const std::int64_t first =
            inputs[i].batch_axis == nn::BatchAxis::none ? 0 : index * plan_.options().batch;
        execution.set_input(inputs[i].name, batch.values()[i].bytes.subspan(
                                                static_cast<std::size_t>(first * inputs[i].type(1).bytes()),
                                                static_cast<std::size_t>(inputs[i].type(examples).bytes())));
    }
}

Execution& StepExecution::execution_of(std::int64_t index) const {
    if (index + 1 == plan_.options().accumulate) return *step_;
    return *accumulate_[completed_levels(index)];
}

void StepExecution::bring(const Batch& batch, std::int64_t step) {
    give_part(execution_of(0), batch, 0);
    brought_ = step;
}

void StepExecution::give(Execution& execution, const Batch& batch, const MicroBatch& micro_batch) {
    const TrainerOptions& options = plan_.options();
    require_fit(batch, plan_.model(), plan_.examples_per_step());
    // Other inputs replace the brought ones.
    const bool brought =
        brought_ == micro_batch.step && micro_batch.index == 0 && &execution == &execution_of(0);
    brought_ = -1;
    if (!brought) give_part(execution, batch, micro_batch.index);
    if (execution.has_input("random_seed")) {
        const auto seed = static_cast<std::int64_t>(options.seed);
        const std::int64_t step =
            micro_batch.step * plan_.random_runs() + options.first_micro_batch() + micro_batch.index;
        execution.set_input("random_seed", std::span<const std::int64_t>(&seed, 1));
        execution.set_input("random_step", std::span<const std::int64_t>(&step, 1));
    }
    const auto rate = static_cast<float>(micro_batch.learning_rate);
    const bool updates = micro_batch.index + 1 == options.accumulate;
    if (updates) execution.set_input("learning_rate", std::span<const float>(&rate, 1));
}

Execution& StepExecution::prepare(const Batch& batch, const MicroBatch& micro_batch) {
    Execution& execution = execution_of(micro_batch.index);
    derive();
    give(execution, batch, micro_batch);
    return execution;
}

Execution StepExecution::prepare_scaled_up(const Batch& batch, const MicroBatch& micro_batch) {
    check(plan_.scaled_up() != nullptr, "the policy rounds gradients to FP16");
    Execution execution(*plan_.scaled_up(), *own_, *arena_);
    derive();
    give(execution, batch, micro_batch);
    return execution;
}

StepExecution::ShapedForward& StepExecution::evaluation_of(const BatchShape& shape) {
    const auto known = std::ranges::find(evaluations_, shape, &ShapedForward::shape);
    if (known != evaluations_.end()) {
        evaluations_.splice(evaluations_.begin(), evaluations_, known);
        return evaluations_.front();
    }
    ShapedForward made{.shape = shape,
                       .model = in_shape(plan_.model(), shape),
                       .ids = {},
                       .arena = memory_->arena,
                       .forward = nullptr};
    PipelineOptions pipeline = plan_.pipeline();
    pipeline.dump = {};
    const std::int64_t examples = std::max<std::int64_t>(1, shape.examples);
    const auto trace = [&](Graph& graph) {
        const Tensor loss = nn::trace_loss(made.model, graph, examples, nn::Mode::evaluation_of_targets());
        made.ids = id_ranges(graph);
        return loss;
    };
    made.forward = std::make_unique<Forward>(plan_.device(), trace, pipeline, "loss", own_.get());
    // Without dropout, attention may be one fused operation here and not in training, with more workspace.
    made.forward->bind(
        *own_, {fmt::format("evaluation of {}", count_text(examples, "example")), "give fewer at once"},
        made.arena.get());
    check(made.forward->state().states().empty(), "evaluation has no state that training lacks");
    evaluations_.push_front(std::move(made));
    while (evaluations_.size() > std::max<std::size_t>(1, plan_.options().plans)) evaluations_.pop_back();
    return evaluations_.front();
}

Evaluation StepExecution::evaluate(const Batch& batch) {
    ShapedForward& made = evaluation_of(
        shape_of(batch, plan_.model(), std::max<std::int64_t>(1, examples_in(batch, plan_.model()))));
    Execution& execution = made.forward->execution();
    check_ids(made.ids, made.model, batch);
    derive();
    for (std::size_t i = 0; i < batch.values().size(); ++i)
        execution.set_input(made.model.inputs[i].name, batch.values()[i].bytes);
    execution.run();
    return {.loss = execution.read_scalar("loss"), .metrics = metrics_of(execution)};
}

LossScaleState StepExecution::loss_scale() const {
    const LossScaleOptions& options = plan_.options().loss_scale;
    switch (options.kind) {
        case LossScaleOptions::Kind::by_policy:
        case LossScaleOptions::Kind::none:
            return {};
        case LossScaleOptions::Kind::fixed:
            return {.scale = options.initial};
        case LossScaleOptions::Kind::dynamic:
            break;
    }
    double skipped = 0;
    const std::vector<std::byte> bytes = state().read("loss_scale.skipped");
    std::memcpy(&skipped, bytes.data(), sizeof skipped);
    return {.scale = static_cast<double>(state().read_f32("loss_scale.scale")[0]),
            .skipped = static_cast<std::int64_t>(skipped)};
}

void StepExecution::write_loss_scale(float scale) {
    if (plan_.options().loss_scale.kind == LossScaleOptions::Kind::dynamic)
        state().write("loss_scale.scale", std::as_bytes(std::span<const float>(&scale, 1)));
}

void StepExecution::clear_gradients() {
    for (const State& each : state().states()) {
        if (each.kind != State::Kind::gradient) continue;
        state().write(each.name, std::vector<std::byte>(static_cast<std::size_t>(each.type.bytes())));
    }
}

}  // namespace mantissa
