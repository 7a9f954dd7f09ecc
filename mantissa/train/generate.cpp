#include "mantissa/train/generate.h"

#include <fmt/format.h>

#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

std::string_view name_of(TextEnd end) {
    switch (end) {
        case TextEnd::length:
            return "length";
        case TextEnd::context:
            return "context";
        case TextEnd::end_of_text:
            return "end_of_text";
    }
    throw InternalError("the end of a text has a name");
}

Generated generate(Generator& generator, std::span<const std::int32_t> prompt, const GenerateOptions& options,
                   FunctionRef<void(std::int32_t)> show) {
    validate(options.sampling);
    if (options.length < 1)
        throw UserError(fmt::format("the length must be 1 token or more, got {}", options.length));
    Generated generated;
    Stopwatch watch;
    std::vector<float> logits = generator.prompt(prompt);
    generated.prompt_seconds = watch.seconds();
    watch.restart();
    for (;;) {
        const std::int32_t token = sample(logits, options.sampling, generator.length());
        generated.end = TextEnd::end_of_text;
        if (token == options.last_token) break;
        generated.tokens.push_back(token);
        generated.log_probabilities.push_back(log_probability(logits, token));
        show(token);
        generated.end = TextEnd::length;
        if (static_cast<std::int64_t>(generated.tokens.size()) == options.length) break;
        generated.end = TextEnd::context;
        if (generator.length() == generator.context()) break;
        logits = generator.next(token);
        ++generated.timed_tokens;
    }
    generated.seconds = watch.seconds();
    return generated;
}

}  // namespace mantissa
