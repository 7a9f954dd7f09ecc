#include "mantissa/train/token_generator.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/graph/graph.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"

namespace mantissa::inline v0 {

namespace {

/// The plan that takes `count` tokens of each text.
std::unique_ptr<Forward> forward_of(Device& device, const nn::LanguageModel& model, std::int64_t texts,
                                    std::int64_t count, const Policy& policy) {
    const auto trace = [&](Graph& graph) {
        const Tensor tokens(graph, graph.add_input("tokens", {DType::i32, {texts, count}}));
        const Tensor positions(graph, graph.add_input("positions", {DType::i32, {texts, count}}));
        return model.next_logits(tokens, positions, policy.low.value_or(DType::f32));
    };
    const PipelineOptions pipeline{.policy = policy, .lay_out = true};
    return std::make_unique<Forward>(device, trace, pipeline, "logits");
}

void require_fit(const nn::LanguageModel& model, std::int64_t prompt_tokens) {
    if (prompt_tokens < 1) throw UserError("the prompt is empty; give it one token or more");
    if (prompt_tokens > model.used_context())
        throw UserError(fmt::format(
            "the prompt has {} tokens, {} {} {}; give a shorter prompt", prompt_tokens, model.name,
            model.used_context() < model.context ? "was trained on sequences of" : "has a context of",
            model.used_context()));
}

}  // namespace

TokenGenerator::TokenGenerator(Device& device, const nn::LanguageModel& model, std::int64_t prompt_tokens,
                               const Policy& policy)
    : TokenGenerator(device, model, {&prompt_tokens, 1}, policy, 1) {}

TokenGenerator::TokenGenerator(Device& device, const nn::LanguageModel& model,
                               std::span<const std::int64_t> prompt_tokens, const Policy& policy,
                               std::int64_t texts)
    : device_(device), model_(model) {
    if (texts < 1) throw UserError(fmt::format("one text or more go on at once, got {}", texts));
    lengths_.resize(texts);
    has_prompt_.resize(texts);
    for (const std::int64_t tokens : prompt_tokens) require_fit(model, tokens);
    for (const std::int64_t tokens : prompt_tokens)
        if (!prompts_.contains(tokens)) prompts_[tokens] = forward_of(device, model, 1, tokens, policy);
    token_ = forward_of(device, model, texts, 1, policy);
}

std::vector<const Forward*> TokenGenerator::all() const {
    std::vector<const Forward*> all{token_.get()};
    for (const auto& [length, prompt] : prompts_) all.push_back(prompt.get());
    return all;
}

std::vector<State> TokenGenerator::parameters() const {
    std::vector<State> states;
    for (const State& state : token_plan().graph().states())
        if (is_weight(state)) states.push_back(state);
    return states;
}

std::int64_t TokenGenerator::arena_bytes() const {
    std::int64_t bytes = 0;
    for (const Forward* each : all()) bytes = std::max(bytes, each->arena_bytes());
    return bytes;
}

std::int64_t TokenGenerator::bytes() const {
    std::int64_t bytes = arena_bytes();
    for (const Forward* each : all()) bytes += each->held_bytes();
    for (const State& state : token_plan().graph().states())
        if (!is_weight(state)) bytes += token_plan().aligned(state.type.bytes());
    return bytes;
}

void TokenGenerator::allocate(const StateBlock& parameters) {
    const Forward::Memory memory{fmt::format("to continue a prompt of {} {}",
                                             count_text(prompts_.rbegin()->first, "token"), model_.name)};
    Forward::require_memory(device_, memory, bytes());
    arena_ = device_.allocate(arena_bytes(), "activations");
    // All plans read the same derived states.
    token_->bind(parameters, memory, arena_.get());
    for (std::int64_t text = 0; text < texts(); ++text)
        state_of_text_.push_back(std::make_unique<StateBlock>(
            device_, prompts_.begin()->second->plan().graph().states(), token_->state(), text));
    derive();
}

std::vector<float> TokenGenerator::prompt(std::span<const std::int32_t> tokens, std::int64_t text) {
    const auto forward = prompts_.find(static_cast<std::int64_t>(tokens.size()));
    check(forward != prompts_.end(), "the prompt has a length announced");
    Execution execution(forward->second->plan(), *state_of_text_[text], *arena_);
    const std::int64_t first = 0;
    lengths_[text] = static_cast<std::int64_t>(tokens.size());
    has_prompt_[text] = true;
    return run(execution, tokens, {&first, 1}, nullptr);
}

std::vector<float> TokenGenerator::next(std::span<const std::int32_t> tokens) {
    check(std::ssize(tokens) == texts(), "every text gets a token");
    for (std::size_t text = 0; text < lengths_.size(); ++text)
        check(has_prompt_[text] && lengths_[text] < context(),
              "there is a prompt, and room for a token after it");
    const std::vector<std::int64_t> before = lengths_;
    for (std::int64_t& length : lengths_) ++length;
    return run(token_->execution(), tokens, before, &profile_);
}

std::vector<float> TokenGenerator::run(Execution& execution, std::span<const std::int32_t> tokens,
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
