#include "mantissa/train/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

namespace {

BuiltGraph built_for(const StateBlock* parameters, const TraceModel& trace, PipelineOptions pipeline,
                     const Machine& machine, const std::string& result) {
    BuiltGraph built = build_evaluation(trace, pipeline, machine, result);
    if (!parameters || !parameters->lacks_zeros(built.graph.states())) return built;
    pipeline.pad = false;
    return build_evaluation(trace, pipeline, machine, result);
}

}  // namespace

Forward::Forward(Device& device, const TraceModel& trace, const PipelineOptions& pipeline,
                 const std::string& result, const StateBlock* parameters, MakeKernels make)
    : Forward(device, built_for(parameters, trace, pipeline, machine_for_passes(device), result), make) {}

Forward::Forward(Device& device, BuiltGraph built, MakeKernels make)
    : device_(device), plan_(std::move(built.graph), device, make), refused_(std::move(built.refused)) {
    if (!built.derive.states().empty())
        derive_plan_ = std::make_unique<Plan>(std::move(built.derive), device, make);
}

std::int64_t Forward::arena_bytes() const {
    return std::max(plan_.memory().arena_bytes, derive_plan_ ? derive_plan_->memory().arena_bytes : 0);
}

std::int64_t Forward::held_bytes() const {
    const auto of = [](const Plan& plan) { return plan.constant_bytes() + plan.input_bytes(); };
    return of(plan_) + (derive_plan_ ? of(*derive_plan_) : 0);
}

void Forward::require_memory(const Device& device, const Memory& memory, std::int64_t bytes) {
    if (const std::int64_t available = device.free_memory(); bytes > available)
        throw UserError(fmt::format("{} needs {} MB more, {} MB are available{}{}", memory.what,
                                    bytes / 1000000, available / 1000000, memory.advice.empty() ? "" : "; ",
                                    memory.advice));
}

void Forward::bind(const StateBlock& parameters, const Memory& memory, DeviceMemory* arena) {
    const bool shares = arena && std::cmp_less_equal(arena_bytes(), arena->size());
    std::int64_t needed = shares ? 0 : arena_bytes();
    for (const State& state : plan_.graph().states())
        if (!parameters.has(state.name)) needed += plan_.aligned(state.stored_bytes());
    require_memory(device_, memory, needed);
    state_ = std::make_unique<StateBlock>(device_, plan_.graph().states(), parameters);
    if (!shares) own_arena_ = device_.allocate(static_cast<std::size_t>(arena_bytes()), "activations");
    DeviceMemory& activations = shares ? *arena : *own_arena_;
    execution_ = std::make_unique<Execution>(plan_, *state_, activations);
    if (derive_plan_) derive_ = std::make_unique<Execution>(*derive_plan_, *state_, activations);
}

void Forward::derive() {
    if (derive_) derive_->start();
}

}  // namespace mantissa
