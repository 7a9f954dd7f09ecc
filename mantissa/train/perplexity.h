// The loss of a model on a text under a policy, inference policies included.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mantissa/data/corpus.h"
#include "mantissa/nn/language_model.h"
#include "mantissa/passes/autocast.h"
#include "mantissa/runtime/state_block.h"

namespace mantissa::inline v0 {

struct Perplexity {
    std::int64_t tokens = 0;  ///< predicted ones
    double loss = 0;          ///< their mean cross-entropy
    double seconds = 0;

    double value() const;  ///< exp(loss)
    double tokens_per_second() const { return static_cast<double>(tokens) / seconds; }
};

/// Reasons why a loss under a policy may be no number, and how to find them; for messages.
std::string why_not_finite(std::string_view policy);

/// The perplexity of a text, in windows of the model's used context that do not overlap, as in validation.
/// Each token is predicted from the tokens before it in its window, and in its document if the text marks
/// documents. Throws UserError for a text of fewer than two tokens, or if the memory does not suffice.
Perplexity perplexity(Device& device, const nn::LanguageModel& model, const Policy& policy,
                      const StateBlock& parameters, const Corpus& text);

}  // namespace mantissa
