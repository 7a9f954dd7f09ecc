// Mistral: Jiang et al., "Mistral 7B", 2023, a LLaMA with a window of visible tokens.
#include "mantissa/nn/families/families.h"

namespace mantissa::inline v0::nn {

const DecoderFamily& mistral_family() {
    using enum ConfigKey::Absent;
    static const DecoderFamily row = {
        .model_type = "mistral",
        .architecture = "MistralForCausalLM",
        .parts = {.key_heads = 8, .context = 131072, .epsilon = 1e-6, .window = 4096},
        .keys = common_keys({{"num_key_value_heads", &Decoder::key_heads, none},
                             {"head_dim", &Decoder::head_size, none},
                             {"hidden_act", &Decoder::activation},
                             {"rms_norm_eps", &Decoder::epsilon},
                             {"sliding_window", &Decoder::window, none},
                             {"attention_dropout", ConfigKey::Dropout{}}}),
        .layer_types = LayerTypes::read,  // as in Ministral
        // Ours, for tests and first steps.
        .presets = {{"mistral-tiny", "",
                     R"({"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
                         "hidden_size": 128, "intermediate_size": 352, "vocab_size": 512,
                         "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "sliding_window": 64})"}}};
    return row;
}

}  // namespace mantissa::nn
