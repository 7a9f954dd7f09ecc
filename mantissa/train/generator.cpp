#include "mantissa/train/generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "mantissa/base/error.h"
#include "mantissa/passes/pipeline.h"

namespace mantissa::inline v0 {

namespace {

/// What takes `count` tokens.
BuiltGraph graph_for(Device& device, const nn::LanguageModel& model, std::int64_t count,
                     const Policy& policy) {
    const auto trace = [&](Graph& graph) {
        const Tensor tokens(graph, graph.add_input("tokens", {DType::i32, {1, count}}));
        const Tensor positions(graph, graph.add_input("positions", {DType::i32, {count}}));
        return model.next_logits(tokens, positions, policy.low.value_or(DType::f32));
    };
    return build_evaluation(trace, pipeline_on(device, {.policy = policy, .lay_out = true}), "logits");
}

}  // namespace

Generator::Generator(Device& device, const nn::LanguageModel& model, std::int64_t prompt_tokens,
                     const Policy& policy)
    : device_(device), model_(model), prompt_tokens_(prompt_tokens) {
    if (prompt_tokens < 1) throw UserError("the prompt is empty; give it one token or more");
    if (prompt_tokens > model.context)
        throw UserError(fmt::format("the prompt has {} tokens, {} has a context of {}; give a shorter prompt",
                                    prompt_tokens, model.name, model.context));
    BuiltGraph prompt = graph_for(device, model, prompt_tokens, policy);
    BuiltGraph token = graph_for(device, model, 1, policy);
    prompt_plan_ = std::make_unique<Plan>(std::move(prompt.graph), device);
    token_plan_ = std::make_unique<Plan>(std::move(token.graph), device);
    // Both read the same derived states.
    if (!token.derive.states().empty())
        derive_plan_ = std::make_unique<Plan>(std::move(token.derive), device);
}

std::vector<const Plan*> Generator::plans() const {
    std::vector<const Plan*> all{prompt_plan_.get(), token_plan_.get()};
    if (derive_plan_) all.push_back(derive_plan_.get());
    return all;
}

std::vector<State> Generator::parameters() const {
    std::vector<State> states;
    for (const State& state : token_plan_->graph().states())
        if (is_weight(state)) states.push_back(state);
    return states;
}

std::int64_t Generator::bytes() const {
    std::int64_t bytes = 0;
    for (const Plan* plan : plans()) bytes = std::max(bytes, plan->memory().arena_bytes);
    for (const Plan* plan : plans()) bytes += plan->constant_bytes() + plan->input_bytes();
    for (const State& state : token_plan_->graph().states())
        if (!is_weight(state)) bytes += token_plan_->aligned(state.type.bytes());
    return bytes;
}

void Generator::allocate(const StateBlock& parameters) {
    const std::int64_t available = device_.free_memory();
    if (bytes() > available)
        throw UserError(
            fmt::format("to continue a prompt of {} tokens {} needs {} MB more, {} MB are available",
                        prompt_tokens_, model_.name, bytes() / 1000000, available / 1000000));
    state_ = std::make_unique<StateBlock>(device_, token_plan_->graph().states(), parameters);
    std::int64_t arena = 0;
    for (const Plan* plan : plans()) arena = std::max(arena, plan->memory().arena_bytes);
    arena_ = device_.allocate(static_cast<std::size_t>(arena), "activations");
    prompt_ = std::make_unique<Execution>(*prompt_plan_, *state_, *arena_);
    token_ = std::make_unique<Execution>(*token_plan_, *state_, *arena_);
    if (derive_plan_) derive_ = std::make_unique<Execution>(*derive_plan_, *state_, *arena_);
    derive();
}

void Generator::derive() {
    if (derive_) derive_->start();
}

std::vector<float> Generator::prompt(std::span<const std::int32_t> tokens) {
    check(static_cast<std::int64_t>(tokens.size()) == prompt_tokens_, "the prompt has the length announced");
    length_ = 0;
    return run(*prompt_, tokens, nullptr);
}

std::vector<float> Generator::next(std::int32_t token) {
    check(length_ > 0 && length_ < context(), "there is a prompt, and room for a token after it");
    return run(*token_, {&token, 1}, &profile_);
}

std::vector<float> Generator::run(Execution& execution, std::span<const std::int32_t> tokens,
                                  Profile* profile) {
    std::vector<std::int32_t> positions(tokens.size());
    std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(length_));
    execution.set_input("tokens", tokens);
    execution.set_input("positions", std::span<const std::int32_t>(positions));
    execution.run(profile);
    length_ += static_cast<std::int64_t>(tokens.size());
    const std::vector<std::byte> bytes = execution.read_result("logits");
    std::vector<float> logits(bytes.size() / sizeof(float));
    std::memcpy(logits.data(), bytes.data(), bytes.size());
    return logits;
}

}  // namespace mantissa
