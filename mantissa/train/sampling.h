// The choice of the next token from a model's scores.
#pragma once

#include <cstdint>
#include <span>

#include "mantissa/train/generator.h"

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

}  // namespace mantissa
