#include "mantissa/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/base/system_memory.h"
#include "mantissa/train/accumulate.h"

namespace mantissa {

namespace {

constexpr double gigabyte = 1e9;

/// Times a loss scale: what is lost there as well would be lost at any, since FP16's normal numbers span
/// 2^30.
constexpr double far_above = 1024;

void validate(const TrainerOptions& options) {
    if (options.batch < 1) throw UserError(fmt::format("the batch must be 1 or more, got {}", options.batch));
    if (options.sequence < 1)
        throw UserError(fmt::format("the sequence must be 1 or more, got {}", options.sequence));
    if (options.accumulate < 1)
        throw UserError(
            fmt::format("the micro-steps of a step must be 1 or more, got {}", options.accumulate));
}

TraceModel trace_gpt2(const TrainerOptions& options) {
    return [&options](Graph& graph) {
        const Type ids{DType::i32, {options.batch, options.sequence}};
        const Tensor tokens(graph, graph.add_input("tokens", ids));
        const Tensor targets(graph, graph.add_input("targets", ids));
        RandomState random;
        if (options.model.dropout > 0)
            random = {{graph, graph.add_input("random_seed", {DType::i64, {}})},
                      {graph, graph.add_input("random_step", {DType::i64, {}})}};
        return nn::gpt2_loss(options.model, tokens, targets, random);
    };
}

void require_memory(const Trainer& trainer, const MemoryUse& memory) {
    const std::int64_t available = available_memory();
    if (memory.total() <= available) return;
    const auto gigabytes = [](std::int64_t bytes) { return static_cast<double>(bytes) / gigabyte; };
    throw UserError(fmt::format(
        "{} at {} x {} needs {:.2f} GB ({:.2f} state, {:.2f} activations and gradients), {:.2f} GB are "
        "available; use a smaller --batch, --sequence or --model; explain prints what needs less, as "
        "--recompute does",
        trainer.options().model.name, trainer.options().batch, trainer.options().sequence,
        gigabytes(memory.total()), gigabytes(memory.state), gigabytes(memory.arena), gigabytes(available)));
}

/// The loss of a micro-step as it counts in its step: divided by their number, as loops in PyTorch do.
TraceModel trace_micro_step(const TrainerOptions& options) {
    return [&options](Graph& graph) {
        const Tensor loss = trace_gpt2(options)(graph);
        const OriginScope scope(graph, "loss");
        return options.accumulate == 1 ? loss : loss * (1.0 / static_cast<double>(options.accumulate));
    };
}

}  // namespace

Trainer::Trainer(Device& device, TrainerOptions options) : options_(std::move(options)), device_(device) {
    validate(options_);
    const Stopwatch watch;
    options_.pipeline = pipeline_on(device, std::move(options_.pipeline));
    if (options_.loss_scale.kind != LossScaleOptions::Kind::none)
        options_.pipeline.seed = [scaling = options_.loss_scale](Graph& graph) {
            return mantissa::loss_scale(graph, scaling);
        };
    const TraceUpdate update = adamw_update(options_.optimizer, options_.loss_scale);
    // The plans of a step read the same derived states; the last built is the one that writes them, too.
    if (options_.accumulate == 1) {
        plan_ = build(update, options_.pipeline);
    } else {
        PipelineOptions pipeline = options_.pipeline;
        if (pipeline.dump)
            pipeline.dump = [show = pipeline.dump](const std::string& pass, const Graph& graph) {
                show("accumulate-" + pass, graph);
            };
        accumulate_plan_ = build(add_to_gradients(), pipeline);
        plan_ = build(with_added_gradients(update), options_.pipeline);
    }
    build_milliseconds_ = watch.milliseconds();
    if (options_.pipeline.policy.needs_loss_scale() &&
        options_.loss_scale.kind != LossScaleOptions::Kind::dynamic)
        scaled_up_plan_ = plan_scaled_up(options_.accumulate == 1 ? update : with_added_gradients(update));
}

/// The last micro-step with a larger loss scale, where the scale is part of the plan.
std::unique_ptr<Plan> Trainer::plan_scaled_up(const TraceUpdate& update) const {
    PipelineOptions pipeline = options_.pipeline;
    pipeline.dump = {};
    pipeline.seed = [scale = pipeline.seed](Graph& graph) {
        return scale ? scale(graph) * far_above : constant(graph, far_above);
    };
    BuiltGraph step = build_training_step(trace_micro_step(options_), update, pipeline);
    return std::make_unique<Plan>(std::move(step.graph), device_);
}

std::unique_ptr<Plan> Trainer::build(const TraceUpdate& update, const PipelineOptions& pipeline) {
    BuiltGraph step = build_training_step(trace_micro_step(options_), update, pipeline);
    pass_times_.insert(pass_times_.end(), step.times.begin(), step.times.end());
    refused_ = std::move(step.refused);  // the plans of a step have the same layers,
    padded_ = std::move(step.padded);    // and pad alike
    const Stopwatch planning;
    if (!step.derive.states().empty()) derive_plan_ = std::make_unique<Plan>(std::move(step.derive), device_);
    auto plan = std::make_unique<Plan>(std::move(step.graph), device_);
    pass_times_.push_back({"choose kernels, plan memory", planning.milliseconds(), plan->graph().size()});
    return plan;
}

void Trainer::allocate() {
    if (memory_) return;
    const Trainer* const self = this;
    share(allocate_training_memory(device_, {&self, 1}));
    memory_->state->initialize(options_.seed);
}

void Trainer::share(std::shared_ptr<TrainingMemory> memory) {
    check(!memory_, "a trainer is given its memory once");
    memory_ = std::move(memory);
    execution_ = std::make_unique<Execution>(*plan_, *memory_->state, *memory_->arena);
    if (accumulate_plan_)
        accumulate_ = std::make_unique<Execution>(*accumulate_plan_, *memory_->state, *memory_->arena);
    if (derive_plan_) derive_ = std::make_unique<Execution>(*derive_plan_, *memory_->state, *memory_->arena);
}

void Trainer::derive() {
    const bool current = memory_->derived_by == this && derived_after_ == memory_->state->writes();
    if (current) return;
    if (derive_) derive_->run();
    memory_->derived_by = this;
    derived_after_ = memory_->state->writes();
}

float Trainer::validation_loss(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
    allocate();
    if (!validation_) {
        TrainerOptions without_dropout = options_;
        without_dropout.model.dropout = 0;
        without_dropout.pipeline.dump = {};
        BuiltGraph forward = build_evaluation(trace_gpt2(without_dropout), without_dropout.pipeline);
        validation_plan_ = std::make_unique<Plan>(std::move(forward.graph), device_);
        // What is alive in a forward pass alone is a part of training's, but without dropout attention may be
        // one operation here that it is not there, with a workspace of its own.
        const auto bytes = static_cast<std::size_t>(validation_plan_->memory().arena_bytes);
        if (bytes > memory_->arena->size()) validation_arena_ = device_.allocate(bytes, "validation");
        validation_ = std::make_unique<Execution>(*validation_plan_, *memory_->state,
                                                  validation_arena_ ? *validation_arena_ : *memory_->arena);
    }
    derive();
    validation_->set_input("tokens", tokens);
    validation_->set_input("targets", targets);
    validation_->run();
    return validation_->read_scalar("loss");
}

Trainer::LossScaleState Trainer::loss_scale() const {
    switch (options_.loss_scale.kind) {
        case LossScaleOptions::Kind::none:
            return {};
        case LossScaleOptions::Kind::fixed:
            return {.scale = options_.loss_scale.initial};
        case LossScaleOptions::Kind::dynamic:
            break;
    }
    if (!memory_) return {.scale = options_.loss_scale.initial};
    double skipped = 0;
    const std::vector<std::byte> bytes = memory_->state->read("loss_scale.skipped");
    std::memcpy(&skipped, bytes.data(), sizeof skipped);
    return {.scale = static_cast<double>(memory_->state->read_f32("loss_scale.scale")[0]),
            .skipped = static_cast<std::int64_t>(skipped)};
}

/// Writes the dynamic loss scale; nothing where there is none.
void Trainer::write_loss_scale(float scale) {
    if (options_.loss_scale.kind == LossScaleOptions::Kind::dynamic)
        memory_->state->write("loss_scale.scale", std::as_bytes(std::span<const float>(&scale, 1)));
}

Underflow Trainer::underflow(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
    allocate();
    const std::int64_t last = options_.accumulate - 1;
    Execution& step = micro_step(last, tokens, targets, 0);
    RoundedGradients above;
    if (options_.loss_scale.kind == LossScaleOptions::Kind::dynamic) {
        const auto scale = static_cast<float>(loss_scale().scale);
        write_loss_scale(scale * static_cast<float>(far_above));
        above = rounded_gradients(step);
        write_loss_scale(scale);
    } else {
        check(scaled_up_plan_ != nullptr, "the policy rounds gradients to FP16");
        Execution scaled_up(*scaled_up_plan_, *memory_->state, *memory_->arena);
        give_inputs(scaled_up, last, tokens, targets, 0);
        above = rounded_gradients(scaled_up);
    }
    return underflow_between(rounded_gradients(step), above);
}

void Trainer::look_into(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                        FunctionRef<void(Execution&)> look) {
    allocate();
    look(micro_step(options_.accumulate - 1, tokens, targets, 0));
}

StateBlock& Trainer::state() {
    allocate();
    return *memory_->state;
}

MemoryUse Trainer::memory() const {
    MemoryUse use{.state = plan_->memory().state_bytes,
                  .arena = plan_->memory().arena_bytes,
                  .inputs = plan_->input_bytes()};
    if (scaled_up_plan_) use.arena = std::max(use.arena, scaled_up_plan_->memory().arena_bytes);
    if (!accumulate_plan_) return use;
    // Its states are among those of the other plan.
    use.state += accumulate_plan_->constant_bytes();
    use.arena = std::max(use.arena, accumulate_plan_->memory().arena_bytes);
    use.inputs += accumulate_plan_->input_bytes();
    return use;
}

Execution& Trainer::micro_step(std::int64_t index, std::span<const std::int32_t> tokens,
                               std::span<const std::int32_t> targets, double learning_rate) {
    Execution& execution = index + 1 == options_.accumulate ? *execution_ : *accumulate_;
    derive();
    give_inputs(execution, index, tokens, targets, learning_rate);
    return execution;
}

void Trainer::give_inputs(Execution& execution, std::int64_t index, std::span<const std::int32_t> tokens,
                          std::span<const std::int32_t> targets, double learning_rate) const {
    const auto count = static_cast<std::size_t>(tokens_per_micro_step());
    const std::size_t first = static_cast<std::size_t>(index) * count;
    check(tokens.size() == static_cast<std::size_t>(tokens_per_step()) && targets.size() == tokens.size(),
          "tokens and targets are [N, B, T]");
    execution.set_input("tokens", tokens.subspan(first, count));
    execution.set_input("targets", targets.subspan(first, count));
    if (options_.model.dropout > 0) {
        const auto seed = static_cast<std::int64_t>(options_.seed);
        const std::int64_t step = steps_ * options_.accumulate + index;
        execution.set_input("random_seed", std::span<const std::int64_t>(&seed, 1));
        execution.set_input("random_step", std::span<const std::int64_t>(&step, 1));
    }
    const auto rate = static_cast<float>(learning_rate);
    const bool updates = index + 1 == options_.accumulate;
    if (updates) execution.set_input("learning_rate", std::span<const float>(&rate, 1));
}

StepResult Trainer::step(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                         double learning_rate, Profile* profile) {
    allocate();
    last_scale_ = static_cast<float>(loss_scale().scale);
    derive();
    const Stopwatch watch;
    const std::int64_t last = options_.accumulate - 1;
    for (std::int64_t index = 0; index < last; ++index)
        micro_step(index, tokens, targets, learning_rate).run();
    micro_step(last, tokens, targets, learning_rate).run(profile);
    StepResult result;
    result.seconds = watch.seconds();
    result.loss = execution_->read_scalar("loss");
    result.gradient_norm = execution_->read_scalar("gradient_norm");
    result.applied = execution_->read_result("applied")[0] != std::byte{0};
    applied_ = result.applied;
    ++steps_;
    return result;
}

std::optional<NonFinite> Trainer::first_non_finite(std::span<const std::int32_t> tokens,
                                                   std::span<const std::int32_t> targets,
                                                   double learning_rate) {
    check(!applied_, "a step that was applied would be applied again");
    --steps_;  // random numbers follow the count
    const auto lowered = static_cast<float>(loss_scale().scale);
    write_loss_scale(last_scale_);
    std::optional<NonFinite> found;
    for (std::int64_t index = 0; index < options_.accumulate && !found; ++index)
        found = run_to_first_non_finite(micro_step(index, tokens, targets, learning_rate));
    ++steps_;
    write_loss_scale(lowered);
    clear_gradients();
    return found;
}

/// As the last micro-step leaves them.
void Trainer::clear_gradients() {
    for (const State& state : memory_->state->states()) {
        if (state.kind != State::Kind::gradient) continue;
        memory_->state->write(state.name,
                              std::vector<std::byte>(static_cast<std::size_t>(state.type.bytes())));
    }
}

std::shared_ptr<TrainingMemory> allocate_training_memory(Device& device,
                                                         std::span<const Trainer* const> trainers) {
    std::vector<State> states;
    const Trainer* largest = nullptr;
    for (const Trainer* trainer : trainers)
        if (!largest || trainer->memory().total() > largest->memory().total()) largest = trainer;
    check(largest != nullptr, "memory is for one trainer or more");
    MemoryUse use = largest->memory();
    // One may have the most states, another the largest arena.
    for (const Trainer* trainer : trainers) {
        use.arena = std::max(use.arena, trainer->memory().arena);
        for (const State& state : trainer->plan().graph().states()) {
            const auto same_name = [&](const State& other) { return other.name == state.name; };
            const auto known = std::find_if(states.begin(), states.end(), same_name);
            if (known != states.end()) {  // one that does not pad reads the rows in front
                known->zero_rows = std::max(known->zero_rows, state.zero_rows);
                continue;
            }
            states.push_back(state);
            if (largest->plan().graph().find_state(state.name) < 0)
                use.state += align_up(state.stored_bytes());
        }
    }
    require_memory(*largest, use);
    auto memory = std::make_shared<TrainingMemory>();
    memory->state = std::make_unique<StateBlock>(device, states);
    memory->arena = device.allocate(static_cast<std::size_t>(use.arena), "activations and gradients");
    return memory;
}

}  // namespace mantissa
