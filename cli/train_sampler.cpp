#include "cli/train_sampler.h"

namespace mantissa::cli {

TrainSampler::TrainSampler(Device& device, const nn::LanguageModel& model, const Tokenizer& tokenizer,
                           const SamplerOptions& options)
    : tokenizer_(tokenizer),
      options_(options),
      prompt_(tokenizer.encode_whole(options.prompt)),
      generator_(device, model, static_cast<std::int64_t>(prompt_.size())) {}

std::string TrainSampler::sample() {
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

}  // namespace mantissa::cli
