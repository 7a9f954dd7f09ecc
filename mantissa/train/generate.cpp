#include "mantissa/train/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/base/plain_nan.h"
#include "mantissa/base/printable.h"
#include "mantissa/base/random.h"

namespace mantissa::inline v0 {

namespace {

/// Separates these random numbers from all others of the same seed.
constexpr std::uint32_t sampling_operation = 0x73616d70;  // "samp"

/// The `count` tokens of the largest scores, the largest first; of equal scores the lower token.
std::vector<std::int32_t> largest(std::span<const float> scores, std::size_t count) {
    std::vector<std::int32_t> ids(scores.size());
    std::iota(ids.begin(), ids.end(), 0);
    count = std::min(count, ids.size());
    const auto before = [&](std::int32_t a, std::int32_t b) {
        const float x = scores[a], y = scores[b];
        return x != y ? x > y : a < b;
    };
    std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(), before);
    ids.resize(count);
    return ids;
}

/// e^x in FP32 for x <= 0; e^-87 below -87. Taylor coefficients of 2^r for |r| <= 1/2: 2 ulp.
/// Branch-free, so that compilers vectorise it: std::exp took 0.5 ms for 50,257 scores.
inline float exp_below_zero(float x) {
    constexpr float far = 12582912.0f;  // 1.5 2^23: beyond it the next FP32 number is 1 away
    const float powers = std::max(x, -87.0f) * 1.44269504f;
    const float whole = powers + far - far, r = powers - whole;
    float y = 1.54035304e-4f;
    for (const float coefficient :
         {1.33335581e-3f, 9.61812911e-3f, 5.55041087e-2f, 2.40226507e-1f, 6.93147181e-1f, 1.0f})
        y = y * r + coefficient;
    return y * std::bit_cast<float>((static_cast<std::int32_t>(whole) + 127) << 23);
}

/// e^((score - highest) / temperature) of each score.
std::vector<float> weights_of(std::span<const float> scores, float highest, double temperature) {
    const auto factor = static_cast<float>(std::min(1 / temperature, 1e30));
    std::vector<float> weights(scores.size());
    for (std::size_t i = 0; i < scores.size(); ++i)
        weights[i] = exp_below_zero((scores[i] - highest) * factor);
    return weights;
}

/// Sum in FP64, as four independent sums.
double sum_of(std::span<const float> weights) {
    std::array<double, 4> sums = {};
    const std::size_t whole = weights.size() / 4 * 4;
    for (std::size_t first = 0; first < whole; first += 4)
        for (std::size_t i = 0; i < 4; ++i) sums[i] += static_cast<double>(weights[first + i]);
    for (std::size_t i = whole; i < weights.size(); ++i) sums[i % 4] += static_cast<double>(weights[i]);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// Scores taken side by side, each with its own result: a single chain of results took as long for 50,257
/// scores as reading 2 MB of weights.
constexpr std::size_t side_by_side = 16;

float highest_of(std::span<const float> logits) {
    std::array<float, side_by_side> highest;
    highest.fill(logits[0]);
    const std::size_t whole = logits.size() / side_by_side * side_by_side;
    for (std::size_t first = 0; first < whole; first += side_by_side)
        for (std::size_t i = 0; i < side_by_side; ++i)
            highest[i] = logits[first + i] > highest[i] ? logits[first + i] : highest[i];
    for (const float score : logits.subspan(whole)) highest[0] = score > highest[0] ? score : highest[0];
    return *std::ranges::max_element(highest);
}

void require_finite(std::span<const float> logits, std::int64_t position) {
    std::array<float, side_by_side> none = {};  // stays 0; an infinity or a NaN makes one of them NaN
    const std::size_t whole = logits.size() / side_by_side * side_by_side;
    for (std::size_t first = 0; first < whole; first += side_by_side)
        for (std::size_t i = 0; i < side_by_side; ++i) none[i] += logits[first + i] * 0.0f;
    for (const float score : logits.subspan(whole)) none[0] += score * 0.0f;
    if (std::ranges::all_of(none, [](float zero) { return zero == 0; })) return;
    for (std::size_t id = 0; id < logits.size(); ++id)
        if (!std::isfinite(logits[id]))
            throw UserError(
                fmt::format("the model's score of token {} after {} is {}: a number left the range of "
                            "the policy's formats (FP16 ends at 65504, BF16 and FP32 do not), or, in every "
                            "policy, its parameters are damaged or diverged in training",
                            id, count_text(position, "token"), plain_nan(logits[id])));
}

/// The fewest tokens, likeliest first, with weights that sum to the share of the total.
std::vector<std::int32_t> nucleus(std::span<const float> weights, double share) {
    const double wanted = share * sum_of(weights);
    for (std::size_t count = 64;; count *= 4) {
        std::vector<std::int32_t> ids = largest(weights, count);
        double sum = 0;
        for (std::size_t i = 0; i < ids.size(); ++i) {
            sum += static_cast<double>(weights[ids[i]]);
            if (sum < wanted) continue;
            ids.resize(i + 1);
            return ids;
        }
        if (count >= weights.size()) return ids;
    }
}

/// A number in [0, 1) of 53 bits, so that tokens with a probability below 2^-24 can be drawn, too.
double uniform(const SamplingOptions& options, std::int64_t position) {
    const RandomStream stream{
        .seed = options.seed, .step = static_cast<std::uint32_t>(position), .operation = sampling_operation};
    const auto words = stream.block(0);
    return static_cast<double>((std::uint64_t{words[0]} << 32 | words[1]) >> 11) * 0x1p-53;
}

/// The first token at which the running sum of weights exceeds the share of the total.
std::size_t draw(std::span<const float> weights, double share) {
    const double drawn = share * sum_of(weights);
    double sum = 0;
    for (std::size_t i = 0; i < weights.size(); ++i)
        if ((sum += static_cast<double>(weights[i])) > drawn) return i;
    return weights.size() - 1;  // rounding of the product may reach the sum itself
}

}  // namespace

void validate(const SamplingOptions& options) {
    if (!(options.temperature >= 0) || std::isinf(options.temperature))
        throw UserError(fmt::format("the temperature must be 0 (always the likeliest token) or more, got {}",
                                    options.temperature));
    if (options.top_k < 0)
        throw UserError(fmt::format("top-k must be 0 (all) or more, got {}", options.top_k));
    if (!(options.top_p > 0 && options.top_p <= 1))
        throw UserError(fmt::format("top-p must lie above 0 and be 1 (all) at most, got {}", options.top_p));
    if (!(options.min_p >= 0 && options.min_p <= 1))
        throw UserError(fmt::format("min-p must lie between 0 (all) and 1, got {}", options.min_p));
    if (!(options.repetition_penalty > 0) || std::isinf(options.repetition_penalty))
        throw UserError(fmt::format("the repetition penalty must be above 0, 1 for none, got {}",
                                    options.repetition_penalty));
}

void penalize_repetition(std::span<float> logits, std::span<const std::int32_t> text, double penalty) {
    std::vector<std::int32_t> tokens(text.begin(), text.end());
    std::ranges::sort(tokens);
    const auto repeated = std::ranges::unique(tokens);
    tokens.erase(repeated.begin(), repeated.end());
    for (const std::int32_t token : tokens) {
        check(token >= 0 && static_cast<std::size_t>(token) < logits.size(),
              "a token of the text has a score");
        float& score = logits[static_cast<std::size_t>(token)];
        score = static_cast<float>(score > 0 ? static_cast<double>(score) / penalty
                                             : static_cast<double>(score) * penalty);
    }
}

std::int32_t sample(std::span<const float> logits, const SamplingOptions& options, std::int64_t position) {
    if (options.tokens > 0)
        logits = logits.first(std::min(logits.size(), static_cast<std::size_t>(options.tokens)));
    check(!logits.empty(), "there is a token to draw");
    require_finite(logits, position);
    const float highest = highest_of(logits);
    if (options.temperature == 0)
        return static_cast<std::int32_t>(std::find(logits.begin(), logits.end(), highest) - logits.begin());
    std::vector<std::int32_t> ids;  // none: all, in their order
    std::vector<float> scores(logits.begin(), logits.end());
    if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < logits.size()) {
        ids = largest(logits, static_cast<std::size_t>(options.top_k));
        for (std::size_t i = 0; i < ids.size(); ++i) scores[i] = logits[ids[i]];
        scores.resize(ids.size());
    }
    std::vector<float> weights = weights_of(scores, highest, options.temperature);
    if (options.top_p < 1) {
        const std::vector<std::int32_t> kept = nucleus(weights, options.top_p);
        std::vector<std::int32_t> kept_ids;
        std::vector<float> kept_weights;
        for (const std::int32_t at : kept) {
            kept_ids.push_back(ids.empty() ? at : ids[at]);
            kept_weights.push_back(weights[at]);
        }
        ids = kept_ids;
        weights = kept_weights;
    }
    // The likeliest token weighs 1.
    if (options.min_p > 0)
        for (float& weight : weights)
            if (static_cast<double>(weight) < options.min_p) weight = 0;
    const std::size_t drawn = draw(weights, uniform(options, position));
    return ids.empty() ? static_cast<std::int32_t>(drawn) : ids[drawn];
}

double log_probability(std::span<const float> logits, std::int32_t token) {
    check(token >= 0 && static_cast<std::size_t>(token) < logits.size(), "the token has a score");
    const float highest = highest_of(logits);
    const double below = static_cast<double>(logits[token]) - static_cast<double>(highest);
    // A piece at a time: memory for all of them would be taken from the system anew for every token.
    constexpr std::size_t at_once = 512;
    double sum = 0;
    for (std::size_t first = 0; first < logits.size(); first += at_once) {
        const std::span<const float> piece = logits.subspan(first, std::min(at_once, logits.size() - first));
        std::array<float, at_once> weights;
        for (std::size_t i = 0; i < piece.size(); ++i) weights[i] = exp_below_zero(piece[i] - highest);
        sum += sum_of({weights.data(), piece.size()});
    }
    return below - std::log(sum);
}

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
    static constexpr std::array<std::string_view, 4> names = {"length", "context", "end_of_text", "stop"};
    return names.at(static_cast<std::size_t>(end));
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
