#include "mantissa/train/generator.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/passes/pipeline.h"

namespace mantissa::inline v0 {

namespace {

/// What takes `count` tokens of each of some texts.
BuiltGraph graph_for(Device& device, const nn::LanguageModel& model, std::int64_t texts, std::int64_t count,
                     const Policy& policy) {
    const auto trace = [&](Graph& graph) {
        const Tensor tokens(graph, graph.add_input("tokens", {DType::i32, {texts, count}}));
        const Tensor positions(graph, graph.add_input("positions", {DType::i32, {texts, count}}));
        return model.next_logits(tokens, positions, policy.low.value_or(DType::f32));
    };
    return build_evaluation(trace, pipeline_on(device, {.policy = policy, .lay_out = true}), "logits");
}

void require_fit(const nn::LanguageModel& model, std::int64_t prompt_tokens) {
    if (prompt_tokens < 1) throw UserError("the prompt is empty; give it one token or more");
    if (prompt_tokens > model.context)
        throw UserError(fmt::format("the prompt has {} tokens, {} has a context of {}; give a shorter prompt",
                                    prompt_tokens, model.name, model.context));
}

}  // namespace

Generator::Generator(Device& device, const nn::LanguageModel& model, std::int64_t prompt_tokens,
                     const Policy& policy)
    : Generator(device, model, {&prompt_tokens, 1}, policy, 1) {}

Generator::Generator(Device& device, const nn::LanguageModel& model,
                     std::span<const std::int64_t> prompt_tokens, const Policy& policy, std::int64_t texts)
    : device_(device), model_(model) {
    if (texts < 1) throw UserError(fmt::format("one text or more go on at once, got {}", texts));
    lengths_.resize(static_cast<std::size_t>(texts));
    has_prompt_.resize(static_cast<std::size_t>(texts));
    for (const std::int64_t tokens : prompt_tokens) require_fit(model, tokens);
    for (const std::int64_t tokens : prompt_tokens) {
        if (prompt_plans_.contains(tokens)) continue;
        BuiltGraph prompt = graph_for(device, model, 1, tokens, policy);
        prompt_plans_[tokens] = std::make_unique<Plan>(std::move(prompt.graph), device);
    }
    BuiltGraph token = graph_for(device, model, texts, 1, policy);
    token_plan_ = std::make_unique<Plan>(std::move(token.graph), device);
    // All read the same derived states.
    if (!token.derive.states().empty())
        derive_plan_ = std::make_unique<Plan>(std::move(token.derive), device);
}

std::vector<const Plan*> Generator::plans() const {
    std::vector<const Plan*> all{token_plan_.get()};
    for (const auto& [length, plan] : prompt_plans_) all.push_back(plan.get());
    if (derive_plan_) all.push_back(derive_plan_.get());
    return all;
}

std::vector<State> Generator::parameters() const {
    std::vector<State> states;
    for (const State& state : token_plan_->graph().states())
        if (is_weight(state)) states.push_back(state);
    return states;
}

std::int64_t Generator::arena_bytes() const {
    std::int64_t bytes = 0;
    for (const Plan* plan : plans()) bytes = std::max(bytes, plan->memory().arena_bytes);
    return bytes;
}

std::int64_t Generator::bytes() const {
    std::int64_t bytes = arena_bytes();
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
                        prompt_plans_.rbegin()->first, model_.name, bytes() / 1000000, available / 1000000));
    state_ = std::make_unique<StateBlock>(device_, token_plan_->graph().states(), parameters);
    for (std::int64_t text = 0; text < texts(); ++text)
        state_of_text_.push_back(std::make_unique<StateBlock>(
            device_, prompt_plans_.begin()->second->graph().states(), *state_, text));
    arena_ = device_.allocate(static_cast<std::size_t>(arena_bytes()), "activations");
    token_ = std::make_unique<Execution>(*token_plan_, *state_, *arena_);
    if (derive_plan_) derive_ = std::make_unique<Execution>(*derive_plan_, *state_, *arena_);
    derive();
}

void Generator::derive() {
    if (derive_) derive_->start();
}

std::vector<float> Generator::prompt(std::span<const std::int32_t> tokens, std::int64_t text) {
    const auto plan = prompt_plans_.find(static_cast<std::int64_t>(tokens.size()));
    check(plan != prompt_plans_.end(), "the prompt has a length announced");
    Execution execution(*plan->second, *state_of_text_[static_cast<std::size_t>(text)], *arena_);
    const std::int64_t first = 0;
    lengths_[static_cast<std::size_t>(text)] = static_cast<std::int64_t>(tokens.size());
    has_prompt_[static_cast<std::size_t>(text)] = true;
    return run(execution, tokens, {&first, 1}, nullptr);
}

std::vector<float> Generator::next(std::span<const std::int32_t> tokens) {
    check(std::ssize(tokens) == texts(), "every text gets a token");
    for (std::size_t text = 0; text < lengths_.size(); ++text)
        check(has_prompt_[text] && lengths_[text] < context(),
              "there is a prompt, and room for a token after it");
    const std::vector<std::int64_t> before = lengths_;
    for (std::int64_t& length : lengths_) ++length;
    return run(*token_, tokens, before, &profile_);
}

std::vector<float> Generator::run(Execution& execution, std::span<const std::int32_t> tokens,
                                  std::span<const std::int64_t> first, Profile* profile) {
    const std::size_t of_text = tokens.size() / first.size();
    std::vector<std::int32_t> positions;
    for (const std::int64_t start : first)
        for (std::size_t i = 0; i < of_text; ++i)
            positions.push_back(static_cast<std::int32_t>(start + static_cast<std::int64_t>(i)));
    execution.set_input("tokens", tokens);
    execution.set_input("positions", std::span<const std::int32_t>(positions));
    execution.run(profile);
    const std::vector<std::byte> bytes = execution.read_result("logits");
    const auto* const logits = reinterpret_cast<const float*>(bytes.data());
    return {logits, logits + bytes.size() / sizeof(float)};
}

}  // namespace mantissa
