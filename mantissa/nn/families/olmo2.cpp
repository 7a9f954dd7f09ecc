// OLMo 2 (OLMo team 2025): norms after attention and feed-forward layers, none before; queries and keys are
// normed before they are cut into heads.
#include "mantissa/nn/families/families.h"

namespace mantissa::inline v0::nn {

const DecoderFamily& olmo2_family() {
    using enum ConfigKey::Absent;
    static const DecoderFamily row = {
        .model_type = "olmo2",
        .architecture = "Olmo2ForCausalLM",
        .parts = {.qk_norm = QkNorm::all},
        .names = {.before_attention = "",
                  .after_attention = "post_attention_layernorm",
                  .before_mlp = "",
                  .after_mlp = "post_feedforward_layernorm"},
        .keys = common_keys({{"num_key_value_heads", &Decoder::key_heads, none},
                             {"hidden_act", &Decoder::activation},
                             {"rms_norm_eps", &Decoder::epsilon},
                             {"attention_bias", biases_of_attention()},
                             {"attention_dropout", ConfigKey::Dropout{}}}),
        .presets = {{"olmo2-1b", "",
                     R"({"num_hidden_layers": 16, "num_attention_heads": 16, "hidden_size": 2048,
                         "intermediate_size": 8192, "vocab_size": 100352, "max_position_embeddings": 4096,
                         "rope_theta": 5e5, "rms_norm_eps": 1e-6})"}}};
    return row;
}

}  // namespace mantissa::nn
