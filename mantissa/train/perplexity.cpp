#include "mantissa/train/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/base/clock.h"
#include "mantissa/base/count_text.h"
#include "mantissa/base/error.h"
#include "mantissa/graph/graph.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/train/forward.h"

namespace mantissa::inline v0 {

double Perplexity::value() const { return std::exp(loss); }

std::string why_not_finite(std::string_view policy) {
    return policy == "fp32"
               ? "the parameters are damaged, or diverged in training"
               : "a number left the range of its formats, or the parameters are damaged or diverged "
                 "in training; `policy` fp32 tells which";
}

Perplexity perplexity(Device& device, const nn::LanguageModel& model, const Policy& policy,
                      const StateBlock& parameters, std::span<const std::int32_t> text) {
    const auto size = static_cast<std::int64_t>(text.size());
    if (size < 2)
        throw UserError(
            fmt::format("a text of {} predicts nothing; give one of two or more", count_text(size, "token")));
    const std::int64_t window = std::min(model.used_context(), size - 1);
    const nn::Model sequences = model.on_sequences(window);
    const auto trace = [&](Graph& graph) {
        return nn::trace_loss(sequences, graph, 1, nn::Mode::evaluation_of_targets());
    };
    Forward forward(device, trace, {.policy = policy, .lay_out = true});
    forward.bind(parameters, {fmt::format("the perplexity of {} under {}", model.name, policy.name)});
    forward.derive();
    Execution& execution = forward.execution();
    Perplexity result;
    const Stopwatch watch;
    double total = 0;
    std::vector<std::int32_t> tokens(window), targets(tokens.size());
    for (std::int64_t first = 0; first + 1 < size; first += window) {
        const std::int64_t counted = std::min(window, size - 1 - first);  // the last window may lack some
        const std::span<const std::int32_t> part = text.subspan(first, static_cast<std::size_t>(counted) + 1);
        std::ranges::fill(tokens, 0);
        std::ranges::fill(targets, -1);
        std::ranges::copy(part.first(part.size() - 1), tokens.begin());
        std::ranges::copy(part.last(part.size() - 1), targets.begin());
        execution.set_input<std::int32_t>("tokens", tokens);
        execution.set_input<std::int32_t>("targets", targets);
        execution.run();
        const auto loss = static_cast<double>(execution.read_scalar("loss"));
        if (!std::isfinite(loss))
            throw UsageError(fmt::format(
                "the loss of tokens {} to {} of the text is {} under {}, so there is no perplexity: {}",
                first + 1, first + counted, loss, policy.name, why_not_finite(policy.name)));
        total += loss * static_cast<double>(counted);
        result.tokens += counted;
    }
    result.seconds = watch.seconds();
    result.loss = total / static_cast<double>(result.tokens);
    return result;
}

}  // namespace mantissa
