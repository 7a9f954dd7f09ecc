// How well a model predicts a text under a policy, inference ones included.
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
    std::int64_t tokens = 0;  ///< that were predicted
    double loss = 0;          ///< their mean cross-entropy
    double seconds = 0;

    double value() const;  ///< exp(loss)
    double tokens_per_second() const { return static_cast<double>(tokens) / seconds; }
};

/// Why a loss under a policy may be no number, and how to find out; for messages.
std::string why_not_finite(std::string_view policy);

/// The perplexity of a text, in windows of the context that the model uses, which do not overlap, as training
/// validates. Each token is predicted from those before it in its window, and in its document where the text
/// tells documents apart. Throws UserError for a text of fewer than two tokens, or if the memory does not
/// suffice.
Perplexity perplexity(Device& device, const nn::LanguageModel& model, const Policy& policy,
                      const StateBlock& parameters, const Corpus& text);

}  // namespace mantissa
