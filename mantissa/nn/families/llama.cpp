// LLaMA: Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", 2023, with version 2's
// grouped keys and values and version 3's stretched positions.
#include "mantissa/nn/families/families.h"

namespace mantissa::inline v0::nn {

const DecoderFamily& llama_family() {
    using enum ConfigKey::Absent;
    static const DecoderFamily row = {
        .model_type = "llama",
        .architecture = "LlamaForCausalLM",
        .parts = {.epsilon = 1e-6},
        .keys = common_keys({{"num_key_value_heads", &Decoder::key_heads, none},
                             {"head_dim", &Decoder::head_size, none},
                             {"hidden_act", &Decoder::activation},
                             {"rms_norm_eps", &Decoder::epsilon},
                             {"attention_bias", biases_of_attention()},
                             {"mlp_bias", ConfigKey::Flags{&Decoder::bias_mlp}},
                             // Cuts matrix products into parts.
                             {"pretraining_tp", ConfigKey::NoEffect{}},
                             {"attention_dropout", ConfigKey::Dropout{}}}),
        // llama-tiny is ours, for tests and first steps. The next three are story models from Karpathy's
        // llama2.c; then comes TinyLlama (Zhang et al. 2024).
        .presets = {
            {"llama-tiny", "",
             R"({"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 128,
                 "intermediate_size": 352, "vocab_size": 512, "max_position_embeddings": 256,
                 "rms_norm_eps": 1e-5, "tie_word_embeddings": true})"},
            {"llama-15m", "stories15m",
             R"({"num_hidden_layers": 6, "num_attention_heads": 6, "hidden_size": 288, "intermediate_size": 768,
                 "vocab_size": 32000, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
                 "tie_word_embeddings": true})"},
            {"llama-42m", "stories42m",
             R"({"num_hidden_layers": 8, "num_attention_heads": 8, "hidden_size": 512, "intermediate_size": 1376,
                 "vocab_size": 32000, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5,
                 "tie_word_embeddings": true})"},
            {"llama-110m", "stories110m",
             R"({"num_hidden_layers": 12, "num_attention_heads": 12, "hidden_size": 768, "intermediate_size": 2048,
                 "vocab_size": 32000, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5,
                 "tie_word_embeddings": true})"},
            {"llama-1100m", "tinyllama",
             R"({"num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4, "hidden_size": 2048,
                 "intermediate_size": 5632, "vocab_size": 32000, "max_position_embeddings": 2048,
                 "rms_norm_eps": 1e-5})"},
            {"smollm2-135m", "",
             R"({"num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 576,
                 "intermediate_size": 1536, "vocab_size": 49152, "max_position_embeddings": 8192,
                 "rope_theta": 1e5, "rms_norm_eps": 1e-5, "tie_word_embeddings": true})"},
            {"smollm2-360m", "",
             R"({"num_hidden_layers": 32, "num_attention_heads": 15, "num_key_value_heads": 5, "hidden_size": 960,
                 "intermediate_size": 2560, "vocab_size": 49152, "max_position_embeddings": 8192,
                 "rope_theta": 1e5, "rms_norm_eps": 1e-5, "tie_word_embeddings": true})"},
            {"llama3.2-1b", "",
             R"({"num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 2048,
                 "intermediate_size": 8192, "vocab_size": 128256, "max_position_embeddings": 131072,
                 "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
                 "rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0,
                                     "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                     "original_max_position_embeddings": 8192}})"}}};
    return row;
}

}  // namespace mantissa::nn
