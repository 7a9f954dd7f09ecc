// Continuing prompts, token by token: one text or several at once; and choosing the next token by scores.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "mantissa/base/function_ref.h"
#include "mantissa/train/generator.h"
#include "mantissa/train/token_generator.h"

namespace mantissa::inline v0 {

/// Throws UserError for a temperature that is negative or not finite, a negative top_k, or a top_p outside
/// (0, 1]. Throws it, too, for a min_p outside [0, 1], or a penalty that is not above 0 and finite.
void validate(const SamplingOptions& options);

/// A token drawn by softmax(logits / temperature) over the candidates. Of equal scores the lower token goes
/// first. `position` numbers the draw: seed and position alone decide the random number. Throws UserError if
/// a candidate's score is NaN or infinite. Fan, Lewis, Dauphin, "Hierarchical neural story generation", 2018
/// (top k); Holtzman, Buys, Du, Forbes, Choi, "The curious case of neural text degeneration", 2019 (top p);
/// Nguyen et al., "Turning up the heat: min-p sampling", 2024. They apply in the order of the transformers
/// library: temperature, top k, top p, min p.
std::int32_t sample(std::span<const float> logits, const SamplingOptions& options, std::int64_t position);

/// Makes tokens of a text less likely: each one's score, once, is divided by the penalty if it is positive,
/// and otherwise multiplied by it. Keskar et al., "CTRL", 2019.
void penalize_repetition(std::span<float> logits, std::span<const std::int32_t> text, double penalty);

/// ln softmax(logits)[token]: the model's own log-probability, whatever the options of the draw.
double log_probability(std::span<const float> logits, std::int32_t token);

/// Tokens that remain of a text that slides: the longer half of the context.
std::int64_t slid_length(std::int64_t context);

struct GenerateOptions {
    SamplingOptions sampling = {};
    std::int64_t length = 100;                   ///< tokens to generate at most
    std::vector<std::int32_t> last_tokens = {};  ///< <|endoftext|> and the like: each ends the text
    /// A generator for texts that slide must have slid_length among its prompt lengths.
    FullContext full_context = FullContext::ends;
    /// First tokens, such as <s>, that stay when a text slides, if they are fewer than half of the remaining
    /// tokens.
    std::int64_t kept_first = 0;
};

/// Why a text ended.
enum class TextEnd : std::uint8_t { length, context, end_of_text, stopped };
std::string_view name_of(TextEnd end);

struct Generated {
    std::vector<std::int32_t> tokens;       ///< without the prompt and the token that ended the text
    std::vector<double> log_probabilities;  ///< of each token, by the model: see log_probability
    TextEnd end = TextEnd::length;
    std::int64_t slides = 0;    ///< times that the context was full
    double prompt_seconds = 0;  ///< until the scores of the first token
    double seconds = 0;         ///< of all tokens but the first
    std::int64_t timed_tokens = 0;

    double tokens_per_second() const { return static_cast<double>(timed_tokens) / seconds; }
};

/// Calls `show` with each token. If `show` returns false, that token is the last.
Generated generate(TokenGenerator& generator, std::span<const std::int32_t> prompt,
                   const GenerateOptions& options, FunctionRef<bool(std::int32_t)> show);

/// Continues as many prompts at once as the generator has texts. Text i draws with seed options.sampling.seed
/// + seeds[i] and gets the same tokens as alone. The seconds are the total for all texts.
std::vector<Generated> generate_together(TokenGenerator& generator,
                                         std::span<const std::vector<std::int32_t>> prompts,
                                         std::span<const std::uint64_t> seeds, const GenerateOptions& options,
                                         FunctionRef<bool(std::size_t text, std::int32_t token)> show);

}  // namespace mantissa
