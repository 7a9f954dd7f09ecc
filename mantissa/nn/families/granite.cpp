// Granite 3 (IBM 2024): LLaMA with factors for embedding, residuals, scores and logits.
#include "mantissa/nn/families/families.h"

namespace mantissa::inline v0::nn {

const DecoderFamily& granite_family() {
    using enum ConfigKey::Absent;
    static const DecoderFamily row = {
        .model_type = "granite",
        .architecture = "GraniteForCausalLM",
        .parts = {.epsilon = 1e-6, .attention_multiplier = 1},
        .keys = common_keys({{"num_key_value_heads", &Decoder::key_heads, none},
                             {"hidden_act", &Decoder::activation},
                             {"rms_norm_eps", &Decoder::epsilon},
                             {"attention_bias", biases_of_attention()},
                             {"mlp_bias", ConfigKey::Flags{&Decoder::bias_mlp}},
                             {"embedding_multiplier", &Decoder::embedding_multiplier},
                             {"residual_multiplier", &Decoder::residual_multiplier},
                             {"attention_multiplier", &Decoder::attention_multiplier},
                             {"logits_scaling", &Decoder::logits_divisor},
                             {"attention_dropout", ConfigKey::Dropout{}}}),
        .presets = {{"granite3.3-2b", "",
                     R"({"num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8,
                         "hidden_size": 2048, "intermediate_size": 8192, "vocab_size": 49159,
                         "max_position_embeddings": 131072, "rope_theta": 1e7, "rms_norm_eps": 1e-5,
                         "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 8.0,
                         "attention_multiplier": 0.015625, "tie_word_embeddings": true})"}}};
    return row;
}

}  // namespace mantissa::nn
