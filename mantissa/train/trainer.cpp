#include "mantissa/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/base/system_memory.h"

namespace mantissa {

namespace {

constexpr double gigabyte = 1e9;

void validate(const TrainerOptions& options) {
    if (options.batch < 1) throw UserError(fmt::format("the batch must be 1 or more, got {}", options.batch));
    if (options.sequence < 1)
        throw UserError(fmt::format("the sequence must be 1 or more, got {}", options.sequence));
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

void require_memory(const Trainer& trainer) {
    const MemoryUse memory = trainer.memory();
    const std::int64_t available = available_memory();
    if (memory.total() <= available) return;
    const auto gigabytes = [](std::int64_t bytes) { return static_cast<double>(bytes) / gigabyte; };
    throw UserError(fmt::format(
        "{} at {} x {} needs {:.2f} GB ({:.2f} state, {:.2f} activations and gradients), {:.2f} GB are "
        "available; "
        "use a smaller --batch, --sequence or --model",
        trainer.options().model.name, trainer.options().batch, trainer.options().sequence,
        gigabytes(memory.total()), gigabytes(memory.state), gigabytes(memory.arena), gigabytes(available)));
}

}  // namespace

Trainer::Trainer(Device& device, TrainerOptions options) : options_(std::move(options)), device_(device) {
    validate(options_);
    const Stopwatch watch;
    options_.pipeline.has_kernel = [&device](const Graph& graph, const Node& node) {
        return has_kernel(device, graph, node);
    };
    BuiltGraph step =
        build_training_step(trace_gpt2(options_), adamw_update(options_.optimizer), options_.pipeline);
    pass_times_ = std::move(step.times);
    const Stopwatch planning;
    plan_ = std::make_unique<Plan>(std::move(step.graph), device);
    pass_times_.push_back({"choose kernels, plan memory", planning.milliseconds(), plan_->graph().size()});
    build_milliseconds_ = watch.milliseconds();
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
}

float Trainer::validation_loss(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
    allocate();
    if (!validation_) {
        // Its arena is that of training: what is alive in a forward pass alone is a part of it.
        TrainerOptions without_dropout = options_;
        without_dropout.model.dropout = 0;
        without_dropout.pipeline.dump = {};
        BuiltGraph forward = build_evaluation(trace_gpt2(without_dropout), without_dropout.pipeline);
        validation_plan_ = std::make_unique<Plan>(std::move(forward.graph), device_);
        validation_ = std::make_unique<Execution>(*validation_plan_, *memory_->state, *memory_->arena);
    }
    validation_->set_input("tokens", tokens);
    validation_->set_input("targets", targets);
    validation_->run();
    return validation_->read_scalar("loss");
}

StateBlock& Trainer::state() {
    allocate();
    return *memory_->state;
}

MemoryUse Trainer::memory() const {
    return {.state = plan_->memory().state_bytes,
            .arena = plan_->memory().arena_bytes,
            .inputs = plan_->input_bytes()};
}

StepResult Trainer::step(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                         double learning_rate, Profile* profile) {
    allocate();
    const auto rate = static_cast<float>(learning_rate);
    execution_->set_input("tokens", tokens);
    execution_->set_input("targets", targets);
    execution_->set_input("learning_rate", std::span<const float>(&rate, 1));
    if (options_.model.dropout > 0) {
        const auto seed = static_cast<std::int64_t>(options_.seed);
        execution_->set_input("random_seed", std::span<const std::int64_t>(&seed, 1));
        execution_->set_input("random_step", std::span<const std::int64_t>(&steps_, 1));
    }
    const Stopwatch watch;
    execution_->run(profile);
    StepResult result;
    result.seconds = watch.seconds();
    result.loss = execution_->read_scalar("loss");
    result.gradient_norm = execution_->read_scalar("gradient_norm");
    result.applied = execution_->read_result("applied")[0] != std::byte{0};
    ++steps_;
    return result;
}

std::shared_ptr<TrainingMemory> allocate_training_memory(Device& device,
                                                         std::span<const Trainer* const> trainers) {
    std::vector<State> states;
    const Trainer* largest = nullptr;
    for (const Trainer* trainer : trainers) {
        if (!largest || trainer->memory().total() > largest->memory().total()) largest = trainer;
        for (const State& state : trainer->plan().graph().states()) {
            const auto same_name = [&](const State& other) { return other.name == state.name; };
            if (std::none_of(states.begin(), states.end(), same_name)) states.push_back(state);
        }
    }
    check(largest != nullptr, "memory is for one trainer or more");
    require_memory(*largest);
    auto memory = std::make_shared<TrainingMemory>();
    memory->state = std::make_unique<StateBlock>(device, states);
    memory->arena =
        device.allocate(static_cast<std::size_t>(largest->memory().arena), "activations and gradients");
    return memory;
}

}  // namespace mantissa
