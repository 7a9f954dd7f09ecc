#include "mantissa/train/generate.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {

/// One of the texts that are continued at once.
class Text {
  public:
    Text(const GenerateOptions& options, std::uint64_t seed, std::span<const std::int32_t> prompt)
        : options_(options), text_(prompt.begin(), prompt.end()) {
        options_.sampling.seed += seed;
    }

    /// Draws the next token. False where there is no next token, or no token after it.
    bool draw(std::span<const float> logits, const TokenGenerator& generator, std::int64_t text,
              FunctionRef<bool(std::int32_t)> show) {
        const auto position = static_cast<std::int64_t>(text_.size());
        const std::int32_t token = sample(penalized(logits), options_.sampling, position);
        if (std::ranges::find(options_.last_tokens, token) != options_.last_tokens.end())
            return ended(TextEnd::end_of_text);
        generated_.tokens.push_back(token);
        text_.push_back(token);
        generated_.log_probabilities.push_back(log_probability(logits, token));
        if (!show(token)) return ended(TextEnd::stopped);
        if (static_cast<std::int64_t>(generated_.tokens.size()) == options_.length)
            return ended(TextEnd::length);
        return generator.length(text) < generator.context() || options_.full_context == FullContext::slides ||
               ended(TextEnd::context);
    }

    /// The tokens to read again where the context is full.
    std::vector<std::int32_t> slide(std::int64_t context) {
        ++generated_.slides;
        const std::int64_t left = slid_length(context);
        const std::int64_t first = 2 * options_.kept_first < left ? options_.kept_first : 0;
        std::vector<std::int32_t> rest(text_.begin(), text_.begin() + first);
        rest.insert(rest.end(), text_.end() - (left - first), text_.end());
        return rest;
    }

    bool is_open() const { return is_open_; }
    /// The token that the model reads next; any, if the text has ended.
    std::int32_t last() const { return generated_.tokens.empty() ? 0 : generated_.tokens.back(); }
    Generated take() { return std::move(generated_); }

  private:
    std::span<const float> penalized(std::span<const float> logits) {
        if (options_.sampling.repetition_penalty == 1) return logits;
        penalized_.assign(logits.begin(), logits.end());
        penalize_repetition(penalized_, text_, options_.sampling.repetition_penalty);
        return penalized_;
    }

    bool ended(TextEnd end) {
        generated_.end = end;
        is_open_ = false;
        return false;
    }

    GenerateOptions options_;
    std::vector<std::int32_t> text_;  ///< the prompt and its continuation
    std::vector<float> penalized_;
    Generated generated_;
    bool is_open_ = true;
};

/// Reads one more token of every open text; returns the scores of the token after it, by text. Texts that
/// have filled the context read their remaining tokens again.
std::vector<std::vector<float>> next_scores(TokenGenerator& generator, std::vector<Text>& texts) {
    std::vector<std::vector<float>> scores(texts.size());
    std::vector<bool> is_full(texts.size());
    bool any_has_room = false;
    for (std::size_t i = 0; i < texts.size(); ++i) {
        is_full[i] = generator.length(static_cast<std::int64_t>(i)) == generator.context();
        any_has_room = any_has_room || (texts[i].is_open() && !is_full[i]);
    }
    if (any_has_room) {
        std::vector<std::int32_t> tokens;
        for (std::size_t i = 0; i < texts.size(); ++i) {
            tokens.push_back(texts[i].last());
            // Nobody reads these keys again.
            if (!texts[i].is_open() || is_full[i]) generator.stay(static_cast<std::int64_t>(i));
        }
        const std::vector<float> all = generator.next(tokens);
        const auto V = static_cast<std::ptrdiff_t>(all.size() / texts.size());
        for (std::size_t i = 0; i < texts.size(); ++i) {
            const auto own = all.begin() + static_cast<std::ptrdiff_t>(i) * V;
            scores[i].assign(own, own + V);
        }
    }
    for (std::size_t i = 0; i < texts.size(); ++i)
        if (texts[i].is_open() && is_full[i])
            scores[i] = generator.prompt(texts[i].slide(generator.context()), static_cast<std::int64_t>(i));
    return scores;
}

}  // namespace

std::int64_t slid_length(std::int64_t context) { return (context + 1) / 2; }

std::string_view name_of(TextEnd end) {
    switch (end) {
        case TextEnd::length:
            return "length";
        case TextEnd::context:
            return "context";
        case TextEnd::end_of_text:
            return "end_of_text";
        case TextEnd::stopped:
            return "stop";
    }
    throw InternalError("the end of a text has a name");
}

std::vector<Generated> generate_together(TokenGenerator& generator,
                                         std::span<const std::vector<std::int32_t>> prompts,
                                         std::span<const std::uint64_t> seeds, const GenerateOptions& options,
                                         FunctionRef<bool(std::size_t text, std::int32_t token)> show) {
    validate(options.sampling);
    if (options.length < 1)
        throw UserError(fmt::format("the length must be 1 token or more, got {}", options.length));
    check(std::ssize(prompts) == generator.texts() && seeds.size() == prompts.size(),
          "every text has a prompt and a seed");
    std::vector<Text> texts;
    std::vector<std::vector<float>> first;
    Stopwatch watch;
    for (std::size_t i = 0; i < prompts.size(); ++i)
        first.push_back(generator.prompt(prompts[i], static_cast<std::int64_t>(i)));
    const double prompt_seconds = watch.seconds();
    watch.restart();
    const auto draw = [&](std::size_t i, std::span<const float> logits) {
        const auto show_token = [&](std::int32_t token) { return show(i, token); };
        return texts[i].draw(logits, generator, static_cast<std::int64_t>(i), show_token);
    };
    bool goes_on = false;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        texts.emplace_back(options, seeds[i], prompts[i]);
        goes_on = draw(i, first[i]) || goes_on;
    }
    std::int64_t timed_tokens = 0;
    while (goes_on) {
        const std::vector<std::vector<float>> scores = next_scores(generator, texts);
        goes_on = false;
        for (std::size_t i = 0; i < texts.size(); ++i) {
            if (!texts[i].is_open()) continue;
            ++timed_tokens;
            goes_on = draw(i, scores[i]) || goes_on;
        }
    }
    std::vector<Generated> all;
    for (Text& text : texts) {
        all.push_back(text.take());
        all.back().prompt_seconds = prompt_seconds;
        all.back().seconds = watch.seconds();
        all.back().timed_tokens = timed_tokens;
    }
    return all;
}

Generated generate(TokenGenerator& generator, std::span<const std::int32_t> prompt,
                   const GenerateOptions& options, FunctionRef<bool(std::int32_t)> show) {
    const std::vector<std::int32_t> tokens(prompt.begin(), prompt.end());
    const std::uint64_t seed = 0;
    return std::move(generate_together(generator, {&tokens, 1}, {&seed, 1}, options,
                                       [&](std::size_t, std::int32_t token) { return show(token); })[0]);
}

}  // namespace mantissa
