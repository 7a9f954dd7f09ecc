// Qwen2 (Yang et al., "Qwen2 technical report", 2024) and Qwen2.5: LLaMA with biases of queries, keys and
// values. Qwen3 (2025): norms of queries and keys instead.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "mantissa/nn/families/families.h"

namespace mantissa::inline v0::nn {

namespace {

/// Layers from max_window_layers on have the window, if it is used at all.
void read_windows_of_qwen(const ConfigFile& file, Decoder& parts) {
    if (!file.flag("use_sliding_window", false)) parts.window = 0;
    const std::int64_t first = file.given("max_window_layers") ? file.integer("max_window_layers") : 28;
    for (std::int64_t layer = 0; layer < parts.layers && parts.window > 0; ++layer)
        parts.windowed.push_back(layer >= first);
}

void write_windows_of_qwen(const Decoder& parts, nlohmann::ordered_json& config) {
    std::int64_t first = 0;
    while (first < parts.layers && !parts.has_window(first)) ++first;
    config["use_sliding_window"] = parts.window > 0;
    config["max_window_layers"] = first;
}

std::vector<ConfigKey> keys_of_qwen() {
    using enum ConfigKey::Absent;
    return common_keys({{"num_key_value_heads", &Decoder::key_heads, none},
                        {"hidden_act", &Decoder::activation},
                        {"rms_norm_eps", &Decoder::epsilon},
                        {"sliding_window", &Decoder::window, none},
                        {"attention_dropout", ConfigKey::Dropout{}}});
}

std::vector<ConfigKey> keys_of_qwen3() {
    std::vector<ConfigKey> keys = keys_of_qwen();
    keys.push_back({"head_dim", &Decoder::head_size});
    keys.push_back({"attention_bias", biases_of_attention()});
    return keys;
}

}  // namespace

const DecoderFamily& qwen2_family() {
    static const DecoderFamily row = {
        .model_type = "qwen2",
        .architecture = "Qwen2ForCausalLM",
        .parts = {.key_heads = 32, .context = 32768, .epsilon = 1e-6, .window = 4096, .bias_qkv = true},
        .keys = keys_of_qwen(),
        .layer_types = LayerTypes::needed,
        .own_keys = {"use_sliding_window", "max_window_layers"},
        .read = read_windows_of_qwen,
        .write = write_windows_of_qwen,
        .presets = {
            {"qwen2.5-0.5b", "",
             R"({"num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "hidden_size": 896,
                 "intermediate_size": 4864, "vocab_size": 151936, "max_position_embeddings": 32768,
                 "rope_theta": 1e6, "tie_word_embeddings": true})"},
            {"qwen2.5-1.5b", "",
             R"({"num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2, "hidden_size": 1536,
                 "intermediate_size": 8960, "vocab_size": 151936, "max_position_embeddings": 32768,
                 "rope_theta": 1e6, "tie_word_embeddings": true})"}}};
    return row;
}

const DecoderFamily& qwen3_family() {
    static const DecoderFamily row = {
        .model_type = "qwen3",
        .architecture = "Qwen3ForCausalLM",
        .parts = {.key_heads = 32,
                  .head_size = 128,
                  .context = 32768,
                  .epsilon = 1e-6,
                  .window = 4096,
                  .qk_norm = QkNorm::head},
        .keys = keys_of_qwen3(),
        .layer_types = LayerTypes::needed,
        .own_keys = {"use_sliding_window", "max_window_layers"},
        .read = read_windows_of_qwen,
        .write = write_windows_of_qwen,
        .presets = {
            {"qwen3-0.6b", "",
             R"({"num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
                 "hidden_size": 1024, "intermediate_size": 3072, "vocab_size": 151936,
                 "max_position_embeddings": 40960, "rope_theta": 1e6, "tie_word_embeddings": true})"},
            {"qwen3-1.7b", "",
             R"({"num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
                 "hidden_size": 2048, "intermediate_size": 6144, "vocab_size": 151936,
                 "max_position_embeddings": 40960, "rope_theta": 1e6, "tie_word_embeddings": true})"}}};
    return row;
}

}  // namespace mantissa::nn
