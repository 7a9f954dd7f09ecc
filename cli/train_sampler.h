// Samples during training: the prompt continued with the present weights.
#pragma once

#include <string>
#include <vector>

#include "mantissa/data/corpus.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/generate.h"
#include "mantissa/train/trainer.h"

namespace mantissa::cli {

struct SamplerOptions {
    std::string prompt = "The ";
    std::int64_t length = 64;  ///< tokens
    std::uint64_t seed = 1337;
};

class TrainSampler {
  public:
    /// Plans only. Throws UserError if the prompt is empty or does not fit the model's context.
    TrainSampler(Device& device, const nn::LanguageModel& model, const Tokenizer& tokenizer,
                 const TextReading& reading, const SamplerOptions& options, const Policy& policy = {})
        : tokenizer_(tokenizer),
          options_(options),
          prompt_(tokenizer.encode_whole(options.prompt, reading)),
          generator_(device, model, static_cast<std::int64_t>(prompt_.size()), policy) {}

    /// Bytes that it will hold, in addition to the trainer's.
    std::int64_t bytes() const { return generator_.bytes(); }
    /// `state` has the parameters, and must outlive this.
    void allocate(const StateBlock& state) { generator_.allocate(state); }
    /// The prompt and its continuation.
    std::string sample() {
        generator_.derive();
        StreamDecoder decoder(tokenizer_);
        std::string text = options_.prompt;
        const GenerateOptions options{.sampling = {.tokens = tokenizer_.vocabulary(), .seed = options_.seed},
                                      .length = options_.length,
                                      .last_tokens = {tokenizer_.ends().begin(), tokenizer_.ends().end()}};
        generate(generator_, prompt_, options, [&](TokenId token) {
            text += decoder.push(token);
            return true;
        });
        return text + decoder.finish();
    }

  private:
    const Tokenizer& tokenizer_;
    SamplerOptions options_;
    std::vector<TokenId> prompt_;
    TokenGenerator generator_;
};

}  // namespace mantissa::cli
