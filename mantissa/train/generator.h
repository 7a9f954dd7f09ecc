// A model that continues a text: keys and values of the tokens so far are kept, so that each further token
// costs one token's work. Two plans, one state: one plan takes the whole prompt, the other a single token.
// Weights in the formats of the policy are derived states: made once, when the parameters are there.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "mantissa/nn/language_model.h"
#include "mantissa/passes/autocast.h"
#include "mantissa/runtime/execution.h"

namespace mantissa::inline v0 {

class Generator {
  public:
    /// Plans only, for prompts of one length. Throws UserError if the prompt is empty or longer than the
    /// model's context.
    Generator(Device& device, const nn::LanguageModel& model, std::int64_t prompt_tokens,
              const Policy& policy = {});

    /// Bytes that it will hold: keys and values, derived states, activations, inputs and constants.
    std::int64_t bytes() const;

    /// Takes that memory; the model's parameters are read from `parameters`, which must outlive this, and
    /// makes what is derived from them.
    void allocate(const StateBlock& parameters);
    /// Makes it anew: to be called when the parameters have changed since.
    void derive();

    /// Starts anew with a prompt of the length announced; the scores [V] of the token after it.
    std::vector<float> prompt(std::span<const std::int32_t> tokens);
    /// Appends a token; the scores of the one after it. There must be room in the context.
    std::vector<float> next(std::int32_t token);

    /// Tokens that are kept, and how many can be.
    std::int64_t length() const { return length_; }
    std::int64_t context() const { return model_.context; }
    /// The states of the model, without keys and values.
    std::vector<State> parameters() const;
    /// The plan of one token after the prompt.
    const Plan& token_plan() const { return *token_plan_; }
    /// Seconds of each operation of that plan, when the last token was appended; empty before.
    const Profile& profile() const { return profile_; }

  private:
    std::vector<float> run(Execution& execution, std::span<const std::int32_t> tokens, Profile* profile);
    std::vector<const Plan*> plans() const;

    Device& device_;
    nn::LanguageModel model_;
    std::int64_t prompt_tokens_;
    std::unique_ptr<Plan> prompt_plan_, token_plan_, derive_plan_;  // nothing is derived: null
    std::unique_ptr<StateBlock> state_;
    std::unique_ptr<DeviceMemory> arena_;
    std::unique_ptr<Execution> prompt_, token_, derive_;
    Profile profile_;
    std::int64_t length_ = 0;
};

}  // namespace mantissa
