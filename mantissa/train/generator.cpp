#include "mantissa/train/generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "mantissa/base/error.h"
#include "mantissa/base/system_memory.h"
#include "mantissa/passes/expand.h"
#include "mantissa/passes/simplify.h"

namespace mantissa {

namespace {

/// The plan that takes `count` tokens.
std::unique_ptr<Plan> plan_for(Device& device, const nn::Gpt2Config& model, std::int64_t count) {
    Graph graph;
    const Tensor tokens(graph, graph.add_input("tokens", {DType::i32, {1, count}}));
    const Tensor positions(graph, graph.add_input("positions", {DType::i32, {count}}));
    graph.add_result("logits", nn::gpt2_next_logits(model, tokens, positions).value());
    const auto without_kernel = [&](const Graph& g, const Node& node) {
        return !has_kernel(device, g, node);
    };
    return std::make_unique<Plan>(expand(simplify(graph), without_kernel), device);
}

}  // namespace

Generator::Generator(Device& device, const nn::Gpt2Config& model, std::int64_t prompt_tokens)
    : device_(device), model_(model), prompt_tokens_(prompt_tokens) {
    if (prompt_tokens < 1) throw UserError("the prompt is empty; give it one token or more");
    if (prompt_tokens > model.context)
        throw UserError(fmt::format("the prompt has {} tokens, {} has a context of {}; give a shorter prompt",
                                    prompt_tokens, model.name, model.context));
    prompt_plan_ = plan_for(device, model, prompt_tokens);
    token_plan_ = plan_for(device, model, 1);
}

std::vector<State> Generator::parameters() const {
    std::vector<State> states;
    for (const State& state : token_plan_->graph().states())
        if (state.kind == State::Kind::parameter) states.push_back(state);
    return states;
}

std::int64_t Generator::bytes() const {
    std::int64_t bytes = std::max(prompt_plan_->memory().arena_bytes, token_plan_->memory().arena_bytes);
    for (const Plan* plan : {prompt_plan_.get(), token_plan_.get()})
        bytes += plan->constant_bytes() + plan->input_bytes();
    for (const State& state : token_plan_->graph().states())
        if (state.kind == State::Kind::cache) bytes += align_up(state.type.bytes());
    return bytes;
}

void Generator::allocate(const StateBlock& parameters) {
    const std::int64_t available = available_memory();
    if (bytes() > available)
        throw UserError(
            fmt::format("to continue a prompt of {} tokens {} needs {} MB more, {} MB are available",
                        prompt_tokens_, model_.name, bytes() / 1000000, available / 1000000));
    state_ = std::make_unique<StateBlock>(device_, token_plan_->graph().states(), parameters);
    const std::int64_t arena =
        std::max(prompt_plan_->memory().arena_bytes, token_plan_->memory().arena_bytes);
    arena_ = device_.allocate(static_cast<std::size_t>(arena), "activations");
    prompt_ = std::make_unique<Execution>(*prompt_plan_, *state_, *arena_);
    token_ = std::make_unique<Execution>(*token_plan_, *state_, *arena_);
}

std::vector<float> Generator::prompt(std::span<const std::int32_t> tokens) {
    check(static_cast<std::int64_t>(tokens.size()) == prompt_tokens_, "the prompt has the length announced");
    length_ = 0;
    return run(*prompt_, tokens);
}

std::vector<float> Generator::next(std::int32_t token) {
    check(length_ > 0 && length_ < context(), "there is a prompt, and room for a token after it");
    return run(*token_, {&token, 1});
}

std::vector<float> Generator::run(Execution& execution, std::span<const std::int32_t> tokens) {
    std::vector<std::int32_t> positions(tokens.size());
    std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(length_));
    execution.set_input("tokens", tokens);
    execution.set_input("positions", std::span<const std::int32_t>(positions));
    execution.run();
    length_ += static_cast<std::int64_t>(tokens.size());
    const std::vector<std::byte> bytes = execution.read_result("logits");
    std::vector<float> logits(bytes.size() / sizeof(float));
    std::memcpy(logits.data(), bytes.data(), bytes.size());
    return logits;
}

}  // namespace mantissa
