// A model that continues texts. It keeps keys and values of the tokens so far, so each further token costs
// the work of one token. Several texts at once read the weights once for a token of each. One plan per prompt
// length takes a whole prompt, another a token of every text; all share one state. Weights in the policy's
// formats are derived states, made once from the parameters.
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
    /// Only plans, for prompts of one length. Throws UserError if the prompt is empty or longer than the
    /// model's used context.
    TokenGenerator(Device& device, const nn::LanguageModel& model, std::int64_t prompt_tokens,
                   const Policy& policy = {});
    /// Plans for prompts of several lengths, and `texts` at once. Throws UserError below one text, too.
    TokenGenerator(Device& device, const nn::LanguageModel& model,
                   std::span<const std::int64_t> prompt_tokens, const Policy& policy, std::int64_t texts);

    /// Bytes that it will hold: keys and values, derived states, activations, inputs and constants.
    std::int64_t bytes() const;

    /// Takes that memory and computes derived states. The model's parameters are read from `parameters`,
    /// which must outlive this.
    void allocate(const StateBlock& parameters);
    /// Computes the derived states again: to be called after the parameters change.
    void derive() { token_->derive(); }

    /// Starts a text with a prompt of a planned length; returns the scores [V] of the next token.
    std::vector<float> prompt(std::span<const std::int32_t> tokens, std::int64_t text = 0);
    /// Appends a token to every text; returns the scores [texts, V] of the tokens after them. Each text needs
    /// a prompt and room in the context.
    std::vector<float> next(std::span<const std::int32_t> tokens);
    /// Appends a token to the only text.
    std::vector<float> next(std::int32_t token) { return next({&token, 1}); }
    /// Lets the next token of a text replace its last one: for a text that has ended while others go on.
    void stay(std::int64_t text) { --lengths_[static_cast<std::size_t>(text)]; }

    std::int64_t texts() const { return static_cast<std::int64_t>(lengths_.size()); }
    /// Tokens of a text that are kept.
    std::int64_t length(std::int64_t text = 0) const { return lengths_[static_cast<std::size_t>(text)]; }
    std::int64_t context() const { return model_.used_context(); }
    /// The model's states, without keys and values.
    std::vector<State> parameters() const;
    /// The plan of one token after the prompt.
    const Plan& token_plan() const { return token_->plan(); }
    /// Seconds of each operation of that plan in the last `next`; empty before.
    const Profile& profile() const { return profile_; }

  private:
    /// Runs tokens at positions that count from `first` of each text.
    std::vector<float> run(Execution& execution, std::span<const std::int32_t> tokens,
                           std::span<const std::int64_t> first, Profile* profile);
    std::vector<const Forward*> all() const;
    std::int64_t arena_bytes() const;

    Device& device_;
    nn::LanguageModel model_;
    std::map<std::int64_t, std::unique_ptr<Forward>> prompts_;  // by length
    std::unique_ptr<Forward> token_;
    std::vector<std::unique_ptr<StateBlock>> state_of_text_;  // bound to the prompts' plans
    std::unique_ptr<DeviceMemory> arena_;
    Profile profile_;
    std::vector<std::int64_t> lengths_;
    std::vector<bool> has_prompt_;
};

}  // namespace mantissa
