// A model that continues texts: keys and values of the tokens so far are kept, so that each further token
// costs one token's work. Some texts may go on at once: then weights are read once for a token of each. One
// plan a length of prompt takes a whole prompt, another takes a token of every text; all share one state.
// Weights in the formats of the policy are derived states: made once, when the parameters are there.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "mantissa/nn/language_model.h"
#include "mantissa/passes/autocast.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/forward.h"

namespace mantissa::inline v0 {

class TokenGenerator {
  public:
    /// Plans only, for prompts of one length. Throws UserError if the prompt is empty or longer than the
    /// context that the model uses.
    TokenGenerator(Device& device, const nn::LanguageModel& model, std::int64_t prompt_tokens,
                   const Policy& policy = {});
    /// The same for prompts of some lengths, and `texts` at once. Throws UserError below one text, too.
    TokenGenerator(Device& device, const nn::LanguageModel& model,
                   std::span<const std::int64_t> prompt_tokens, const Policy& policy, std::int64_t texts);

    /// Bytes that it will hold: keys and values, derived states, activations, inputs and constants.
    std::int64_t bytes() const;

    /// Takes that memory; the model's parameters are read from `parameters`, which must outlive this, and
    /// makes what is derived from them.
    void allocate(const StateBlock& parameters);
    /// Makes it anew: to be called when the parameters have changed since.
    void derive() { token_->derive(); }

    /// Starts a text anew with a prompt of a length announced; the scores [V] of the token after it.
    std::vector<float> prompt(std::span<const std::int32_t> tokens, std::int64_t text = 0);
    /// Appends a token to every text; the scores [texts, V] of those after them. Each text has a prompt, and
    /// room in the context.
    std::vector<float> next(std::span<const std::int32_t> tokens);
    /// The same of the only text.
    std::vector<float> next(std::int32_t token) { return next({&token, 1}); }
    /// The next token of a text takes the place of its last: for one that has ended, while others go on.
    void stay(std::int64_t text) { --lengths_[static_cast<std::size_t>(text)]; }

    std::int64_t texts() const { return static_cast<std::int64_t>(lengths_.size()); }
    /// Tokens of a text that are kept, and how many can be.
    std::int64_t length(std::int64_t text = 0) const { return lengths_[static_cast<std::size_t>(text)]; }
    std::int64_t context() const { return model_.used_context(); }
    /// The states of the model, without keys and values.
    std::vector<State> parameters() const;
    /// The plan of one token after the prompt.
    const Plan& token_plan() const { return token_->plan(); }
    /// Seconds of each operation of that plan, when the last tokens were appended; empty before.
    const Profile& profile() const { return profile_; }

  private:
    /// Positions count from `first` of each text on.
    std::vector<float> run(Execution& execution, std::span<const std::int32_t> tokens,
                           std::span<const std::int64_t> first, Profile* profile);
    std::vector<const Forward*> all() const;
    std::int64_t arena_bytes() const;

    Device& device_;
    nn::LanguageModel model_;
    std::map<std::int64_t, std::unique_ptr<Forward>> prompts_;  // by length
    std::unique_ptr<Forward> token_;
    std::vector<std::unique_ptr<StateBlock>> state_of_text_;  // as the prompts' plans see it
    std::unique_ptr<DeviceMemory> arena_;
    Profile profile_;
    std::vector<std::int64_t> lengths_;
    std::vector<bool> has_prompt_;
};

}  // namespace mantissa
