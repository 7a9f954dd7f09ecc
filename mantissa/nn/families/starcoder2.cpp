// StarCoder 2: Lozhkov et al., "StarCoder 2 and The Stack v2", 2024. Layer norms, shared keys, a feed-forward
// layer without a gate, and biases everywhere.
#include "mantissa/nn/families/families.h"

namespace mantissa::inline v0::nn {

const DecoderFamily& starcoder2_family() {
    using enum ConfigKey::Absent;
    static const DecoderFamily row = {
        .model_type = "starcoder2",
        .architecture = "Starcoder2ForCausalLM",
        .parts = {.key_heads = 2,
                  .context = 4096,
                  .tied = true,
                  .layer_norms = true,
                  .bias_qkv = true,
                  .bias_output = true,
                  .bias_mlp = true,
                  .activation = Activation::gelu_tanh,
                  .gated = false},
        .names = {.up = "c_fc", .down = "c_proj"},
        .keys = common_keys(
            {{"num_key_value_heads", &Decoder::key_heads},
             {"hidden_act", &Decoder::activation},
             {"norm_epsilon", &Decoder::epsilon},
             {"sliding_window", &Decoder::window, none},
             {"use_bias", ConfigKey::Flags{&Decoder::bias_qkv, &Decoder::bias_output, &Decoder::bias_mlp}},
             {"attention_dropout", ConfigKey::Dropout{}},
             {"residual_dropout", ConfigKey::Dropout{}},
             {"embedding_dropout", ConfigKey::Dropout{}}}),
        .presets = {{"starcoder2-3b", "",
                     R"({"num_hidden_layers": 30, "num_attention_heads": 24, "num_key_value_heads": 2,
                         "hidden_size": 3072, "intermediate_size": 12288, "vocab_size": 49152,
                         "max_position_embeddings": 16384, "rope_theta": 999999.4420358813,
                         "sliding_window": 4096})"}}};
    return row;
}

}  // namespace mantissa::nn
