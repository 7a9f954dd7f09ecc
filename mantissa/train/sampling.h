// The choice of the next token from a model's scores.
#pragma once

#include <cstdint>
#include <span>

namespace mantissa::inline v0 {

struct SamplingOptions {
    double temperature = 1;     ///< scores are divided by it; 0: the token of the largest score
    std::int64_t top_k = 0;     ///< only the k largest scores are considered; 0: all
    double top_p = 1;           ///< of these only the fewest, likeliest first, that make up this probability
    std::int64_t tokens = 0;    ///< only tokens below this: those that the tokenizer has
    std::uint64_t seed = 1337;  ///< of the random numbers
};

/// Throws UserError for a temperature that is negative or not finite, a negative top_k, or a top_p outside
/// (0, 1].
void validate(const SamplingOptions& options);

/// A token drawn by softmax(logits / temperature) over those considered. Of equal scores the lower token goes
/// first. `position` numbers the draw: with the seed it decides the random number and nothing else does.
/// Throws UserError if a score considered is NaN or infinite. Fan, Lewis, Dauphin, "Hierarchical neural story
/// generation", 2018 (top k); Holtzman, Buys, Du, Forbes, Choi, "The curious case of neural text
/// degeneration", 2019 (top p).
std::int32_t sample(std::span<const float> logits, const SamplingOptions& options, std::int64_t position);

/// ln softmax(logits)[token]: what the model itself gives to the token, whatever the options of the draw.
double log_probability(std::span<const float> logits, std::int32_t token);

}  // namespace mantissa
