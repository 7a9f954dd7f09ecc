#include "mantissa/train/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
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
                      const StateBlock& parameters, const Corpus& text) {
    const auto size = static_cast<std::int64_t>(text.stream.size());
    if (size < 2)
        throw UserError(
            fmt::format("a text of {} predicts nothing; give one of two or more", count_text(size, "token")));
    const std::int64_t window = std::min(model.used_context(), size - 1);
    const nn::Model sequences = text.ends ? model.on_packed_documents(window) : model.on_sequences(window);
    const auto windows = text_batches(text, text.stream.all(), window, {.batch = 1, .all = true});
    BatchBuffer buffer(sequences, 1);
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
    for (std::uint64_t step = 0; step < windows->steps_per_epoch(); ++step) {
        const auto counted = static_cast<std::int64_t>(windows->counted(step));
        if (counted == 0) continue;  // only ends of documents
        const Batch batch = buffer.fill(*windows, step);
        for (std::size_t i = 0; i < sequences.inputs.size(); ++i)
            execution.set_input(sequences.inputs[i].name, batch.values()[i].bytes);
        execution.run();
        const auto loss = static_cast<double>(execution.read_scalar("loss"));
        const std::int64_t first = static_cast<std::int64_t>(step) * window;
        if (!std::isfinite(loss))
            throw UsageError(fmt::format(
                "the loss of tokens {} to {} of the text is {} under {}, so there is no perplexity: {}",
                first + 1, std::min(first + window, size - 1), loss, policy.name,
                why_not_finite(policy.name)));
        total += loss * static_cast<double>(counted);
        result.tokens += counted;
    }
    result.seconds = watch.seconds();
    result.loss = total / static_cast<double>(std::max<std::int64_t>(1, result.tokens));
    return result;
}

}  // namespace mantissa
