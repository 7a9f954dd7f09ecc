// Phi 1 to 2 (Gunasekar et al. 2023): attention and feed-forward read the output of one norm. Phi 3 and 4
// (Abdin et al. 2024): LLaMA with one product for queries, keys and values, and one for gate and up.
#include <nlohmann/json.hpp>

#include "mantissa/nn/families/families.h"

namespace mantissa::inline v0::nn {

const DecoderFamily& phi_family() {
    using enum ConfigKey::Absent;
    static const DecoderFamily row = {
        .model_type = "phi",
        .architecture = "PhiForCausalLM",
        .parts = {.rotary = {.part = 0.5},
                  .layer_norms = true,
                  .bias_qkv = true,
                  .bias_output = true,
                  .bias_mlp = true,
                  .bias_head = true,
                  .activation = Activation::gelu_tanh,
                  .gated = false,
                  .parallel = true},
        .names = {.last_norm = "final_layernorm",
                  .before_mlp = "",
                  .output = "dense",
                  .q_norm = "q_layernorm",
                  .k_norm = "k_layernorm",
                  .up = "fc1",
                  .down = "fc2"},
        .keys = common_keys({{"num_key_value_heads", &Decoder::key_heads, none},
                             {"hidden_act", &Decoder::activation},
                             {"layer_norm_eps", &Decoder::epsilon},
                             {"resid_pdrop", ConfigKey::Dropout{}},
                             {"embd_pdrop", ConfigKey::Dropout{}},
                             {"attention_dropout", ConfigKey::Dropout{}}}),
        .turns_parts = true,
        .own_keys = {"qk_layernorm"},
        .read =
            [](const ConfigFile& file, Decoder& parts) {
                parts.qk_norm = file.flag("qk_layernorm", false) ? QkNorm::head : QkNorm::none;
            },
        .write =
            [](const Decoder& parts, nlohmann::ordered_json& config) {
                config["qk_layernorm"] = parts.qk_norm == QkNorm::head;
            },
        .presets = {{"phi-1.5", "",
                     R"({"num_hidden_layers": 24, "num_attention_heads": 32, "hidden_size": 2048,
                         "intermediate_size": 8192, "vocab_size": 51200, "max_position_embeddings": 2048})"}}};
    return row;
}

const DecoderFamily& phi3_family() {
    using enum ConfigKey::Absent;
    static const DecoderFamily row = {
        .model_type = "phi3",
        .architecture = "Phi3ForCausalLM",
        .parts = {.context = 4096, .epsilon = 1e-5, .rotary = {.original_context = 4096}},
        .names = {.qkv = "qkv_proj", .gate_up = "gate_up_proj"},
        .keys = common_keys({{"num_key_value_heads", &Decoder::key_heads, none},
                             {"hidden_act", &Decoder::activation},
                             {"rms_norm_eps", &Decoder::epsilon},
                             {"sliding_window", &Decoder::window, none},
                             {"attention_bias", ConfigKey::Held{"false"}},
                             {"mlp_bias", ConfigKey::Held{"false"}},
                             {"lm_head_bias", ConfigKey::Held{"false"}},
                             {"resid_pdrop", ConfigKey::Dropout{}},
                             {"embd_pdrop", ConfigKey::Dropout{}},
                             {"attention_dropout", ConfigKey::Dropout{}}}),
        .turns_parts = true,
        .own_keys = {"original_max_position_embeddings"},
        .write =
            [](const Decoder& parts, nlohmann::ordered_json& config) {
                config["original_max_position_embeddings"] = parts.rotary.original_context;
            },
        .presets = {{"phi3-mini", "",
                     R"({"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 3072,
                         "intermediate_size": 8192, "vocab_size": 32064, "max_position_embeddings": 4096,
                         "sliding_window": 2047})"}}};
    return row;
}

}  // namespace mantissa::nn
