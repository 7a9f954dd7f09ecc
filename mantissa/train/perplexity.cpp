#include "mantissa/train/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/runtime/execution.h"

namespace mantissa::inline v0 {

namespace {

BuiltGraph graph_for(Device& device, const nn::Model& model, const Policy& policy) {
    const auto trace = [&](Graph& graph) { return nn::trace_loss(model, graph, 1); };
    return build_evaluation(trace, pipeline_on(device, {.policy = policy, .lay_out = true}));
}

/// The states that the parameters do not hold.
std::int64_t bytes_of_own_states(const Plan& plan, const StateBlock& parameters) {
    std::int64_t bytes = 0;
    for (const State& state : plan.graph().states())
        if (!parameters.has(state.name)) bytes += plan.aligned(state.type.bytes());
    return bytes;
}

}  // namespace

double Perplexity::value() const { return std::exp(loss); }

Perplexity perplexity(Device& device, const nn::LanguageModel& model, const Policy& policy,
                      const StateBlock& parameters, std::span<const std::int32_t> text) {
    const auto size = static_cast<std::int64_t>(text.size());
    if (size < 2)
        throw UserError(fmt::format("a text of {} tokens predicts nothing; give one of two or more", size));
    const std::int64_t window = std::min(model.context, size - 1);
    BuiltGraph built = graph_for(device, model.on_sequences(window), policy);
    const Plan plan(std::move(built.graph), device), derive(std::move(built.derive), device);
    const std::int64_t arena = std::max(plan.memory().arena_bytes, derive.memory().arena_bytes);
    const std::int64_t needed = arena + bytes_of_own_states(plan, parameters);
    if (const std::int64_t available = device.free_memory(); needed > available)
        throw UserError(fmt::format("the perplexity of {} under {} needs {} MB more, {} MB are available",
                                    model.name, policy.name, needed / 1000000, available / 1000000));
    StateBlock state(device, plan.graph().states(), parameters);
    const auto memory = device.allocate(static_cast<std::size_t>(arena), "activations");
    Execution(derive, state, *memory).run();
    Execution execution(plan, state, *memory);
    Perplexity result;
    const Stopwatch watch;
    double total = 0;
    for (std::int64_t first = 0; first + window < size; first += window) {
        const auto part = [&](std::int64_t begin) {
            return text.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(window));
        };
        execution.set_input("tokens", part(first));
        execution.set_input("targets", part(first + 1));
        execution.run();
        const auto loss = static_cast<double>(execution.read_scalar("loss"));
        if (!std::isfinite(loss))
            throw UserError(fmt::format(
                "the loss of tokens {} to {} of the text is {} under {}, so there is no perplexity: {}",
                first + 1, first + window, loss, policy.name,
                policy.name == "fp32"
                    ? "the parameters are damaged, or diverged in training"
                    : "a number left the range of its formats, or the parameters are damaged or diverged in "
                      "training; --policy fp32 tells which"));
        total += loss * static_cast<double>(window);
        result.tokens += window;
    }
    result.seconds = watch.seconds();
    result.loss = total / static_cast<double>(result.tokens);
    return result;
}

}  // namespace mantissa
