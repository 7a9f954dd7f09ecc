// Continuing prompts, token by token: one text, or several at once.
#pragma once

#include <string_view>
#include <vector>

#include "mantissa/base/function_ref.h"
#include "mantissa/train/sampling.h"
#include "mantissa/train/token_generator.h"

namespace mantissa::inline v0 {

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
