// GPT-2 described by its sizes, for tests that make their own.
#pragma once

#include "mantissa/nn/decoder/family.h"
#include "mantissa/nn/losses.h"

namespace mantissa::inline v0::nn {

struct Gpt2Config {
    std::string name = {};
    std::int64_t layers = 12;         // L
    std::int64_t heads = 12;          // H
    std::int64_t channels = 768;      // C, a multiple of H
    std::int64_t vocabulary = 50257;  // V
    std::int64_t context = 1024;      // longest T
    double dropout = 0;
    bool bias = true;

    std::int64_t head_size() const { return channels / heads; }
    std::int64_t parameters() const;
};

inline DecoderConfig decoder_of(const Gpt2Config& config) {
    DecoderConfig made{.name = config.name, .parts = gpt2_family().parts, .family = &gpt2_family()};
    Decoder& parts = made.parts;
    parts.layers = config.layers;
    parts.heads = parts.key_heads = config.heads;
    parts.head_size = config.heads > 0 ? config.head_size() : 0;
    parts.channels = config.channels;
    parts.hidden = 4 * config.channels;
    parts.vocabulary = config.vocabulary;
    parts.context = config.context;
    parts.dropout = config.dropout;
    parts.bias_qkv = parts.bias_output = parts.bias_mlp = parts.bias_norm = config.bias;
    validate(made);
    return made;
}

inline std::int64_t Gpt2Config::parameters() const { return decoder_of(*this).parameters(); }

inline Gpt2Config gpt2_config(std::string_view name) {
    const DecoderConfig config = decoder_config(name);
    return {.name = config.name,
            .layers = config.parts.layers,
            .heads = config.parts.heads,
            .channels = config.parts.channels,
            .vocabulary = config.parts.vocabulary,
            .context = config.parts.context};
}

inline Model gpt2_model(const Gpt2Config& config, std::int64_t sequence,
                        Documents documents = Documents::joined) {
    return decoder_model(decoder_of(config), sequence, documents);
}
inline LanguageModel gpt2_language_model(const Gpt2Config& config) {
    return decoder_language_model(decoder_of(config));
}
inline Tensor gpt2_logits(const Gpt2Config& config, Tensor tokens, const Mode& mode = {},
                          const DocumentPlaces& places = {}) {
    return decoder_logits(decoder_of(config), tokens, mode, places);
}
inline Tensor gpt2_next_logits(const Gpt2Config& config, Tensor tokens, Tensor positions,
                               DType kept = DType::f32) {
    return decoder_next_logits(decoder_of(config), tokens, positions, kept);
}
inline Tensor gpt2_loss(const Gpt2Config& config, Tensor tokens, Tensor targets, const Mode& mode = {}) {
    const Tensor logits = gpt2_logits(config, tokens, mode);
    const OriginScope scope(tokens.graph(), "loss");
    return loss_of_text(logits, targets, mode);
}

}  // namespace mantissa::nn
