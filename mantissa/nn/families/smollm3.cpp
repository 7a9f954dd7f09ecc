// SmolLM3 (Hugging Face 2025): LLaMA without positions in every fourth layer.
#include <nlohmann/json.hpp>

#include "mantissa/nn/families/families.h"

namespace mantissa::inline v0::nn {

namespace {

/// no_rope_layers has a 1 for each layer that turns; the other layers have the window, if it is used.
void read_smollm3(const ConfigFile& file, Decoder& parts) {
    const std::int64_t interval =
        file.given("no_rope_layer_interval") ? file.integer("no_rope_layer_interval") : 4;
    if (interval < 1) file.refuse("no_rope_layer_interval", "which is no number of layers");
    for (std::int64_t layer = 0; layer < parts.layers; ++layer)
        parts.turned.push_back((layer + 1) % interval != 0);
    if (file.given("no_rope_layers")) {
        parts.turned.clear();
        for (const nlohmann::json& turns : file.of_layers("no_rope_layers", parts.layers)) {
            if (turns != 0 && turns != 1) file.refuse("no_rope_layers", "only a list of 0 and 1 can be run");
            parts.turned.push_back(turns == 1);
        }
    }
    if (!file.flag("use_sliding_window", false)) parts.window = 0;
    for (const bool turns : parts.turned) parts.windowed.push_back(!turns);
}

void write_smollm3(const Decoder& parts, nlohmann::ordered_json& config) {
    config["no_rope_layers"] = nlohmann::ordered_json::array();
    for (std::int64_t layer = 0; layer < parts.layers; ++layer)
        config["no_rope_layers"].push_back(parts.turns(layer) ? 1 : 0);
    config["use_sliding_window"] = parts.window > 0;
}

}  // namespace

const DecoderFamily& smollm3_family() {
    using enum ConfigKey::Absent;
    static const DecoderFamily row = {
        .model_type = "smollm3",
        .architecture = "SmolLM3ForCausalLM",
        .parts = {.key_heads = 4, .context = 32768, .epsilon = 1e-6, .rotary = {.theta = 2e6}, .tied = true},
        .keys = common_keys({{"num_key_value_heads", &Decoder::key_heads, none},
                             {"hidden_act", &Decoder::activation},
                             {"rms_norm_eps", &Decoder::epsilon},
                             {"sliding_window", &Decoder::window, none},
                             {"attention_bias", biases_of_attention()},
                             {"mlp_bias", ConfigKey::Flags{&Decoder::bias_mlp}},
                             {"attention_dropout", ConfigKey::Dropout{}}}),
        .layer_types = LayerTypes::needed,
        .own_keys = {"no_rope_layers", "no_rope_layer_interval", "use_sliding_window"},
        .read = read_smollm3,
        .write = write_smollm3,
        .presets = {{"smollm3-3b", "",
                     R"({"num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4,
                         "hidden_size": 2048, "intermediate_size": 11008, "vocab_size": 128256,
                         "max_position_embeddings": 65536, "rope_theta": 5e6})"}}};
    return row;
}

}  // namespace mantissa::nn
