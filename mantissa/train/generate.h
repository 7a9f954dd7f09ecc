// Continuing a prompt, token by token.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "mantissa/base/function_ref.h"
#include "mantissa/train/generator.h"
#include "mantissa/train/sampling.h"

namespace mantissa::inline v0 {

struct GenerateOptions {
    SamplingOptions sampling = {};
    std::int64_t length = 100;                    ///< tokens to generate at most
    std::optional<std::int32_t> last_token = {};  ///< <|endoftext|>: where it is drawn, it ends the text
};

/// Why a text ended. A full context ends it, too: positions beyond it have no embedding, and sliding it along
/// would mean computing all keys and values anew for every token.
enum class TextEnd : std::uint8_t { length, context, end_of_text };
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

/// Calls `show` with each token as it comes.
Generated generate(Generator& generator, std::span<const std::int32_t> prompt, const GenerateOptions& options,
                   FunctionRef<void(std::int32_t)> show);

}  // namespace mantissa
