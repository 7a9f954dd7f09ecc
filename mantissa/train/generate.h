// Continuing prompts, token by token: one, or some at once.
#pragma once

#include <string_view>
#include <vector>

#include "mantissa/base/function_ref.h"
#include "mantissa/train/generator.h"
#include "mantissa/train/sampling.h"

namespace mantissa::inline v0 {

struct GenerateOptions {
    SamplingOptions sampling = {};
    std::int64_t length = 100;                   ///< tokens to generate at most
    std::vector<std::int32_t> last_tokens = {};  ///< <|endoftext|> and the like: each ends the text
};

/// Why a text ended. A full context ends it, too: positions beyond it have no embedding, and sliding it along
/// would mean computing all keys and values anew for every token.
enum class TextEnd : std::uint8_t { length, context, end_of_text, stopped };
std::string_view name_of(TextEnd end);

struct Generated {
    std::vector<std::int32_t> tokens;       ///< without the prompt and without what ended it
    std::vector<double> log_probabilities;  ///< of each of them, by the model: see log_probability
    TextEnd end = TextEnd::length;
    double prompt_seconds = 0;  ///< to the scores of the first token
    double seconds = 0;         ///< from those to the end: of all tokens but the first
    std::int64_t timed_tokens = 0;

    double tokens_per_second() const { return static_cast<double>(timed_tokens) / seconds; }
};

/// Calls `show` with each token as it comes, which answers whether the text goes on; a token after which it
/// does not is its last.
Generated generate(Generator& generator, std::span<const std::int32_t> prompt, const GenerateOptions& options,
                   FunctionRef<bool(std::int32_t)> show);

/// As many prompts as the generator has texts, all at once; text i draws with seed options.sampling.seed plus
/// seeds[i]. Each text has the tokens that it has alone. The seconds are those of all texts together.
std::vector<Generated> generate_together(Generator& generator,
                                         std::span<const std::vector<std::int32_t>> prompts,
                                         std::span<const std::uint64_t> seeds, const GenerateOptions& options,
                                         FunctionRef<bool(std::size_t text, std::int32_t token)> show);

}  // namespace mantissa
