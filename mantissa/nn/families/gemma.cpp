// Gemma (Gemma team 2024): norms times 1 + weight, an embedding times sqrt(C). Gemma 2 (2024): norms before
// and after each part, capped scores and logits, every other layer with a window. Gemma 3 (2025): norms of
// queries and keys in place of the caps, five layers with a window to one without, which have positions of
// their own.
#include "mantissa/nn/families/families.h"

namespace mantissa::inline v0::nn {

namespace {

std::vector<ConfigKey> keys_of_gemma(std::vector<ConfigKey> own) {
    using enum ConfigKey::Absent;
    own.insert(own.end(), {{"num_key_value_heads", &Decoder::key_heads},
                           {"head_dim", &Decoder::head_size},
                           {"rms_norm_eps", &Decoder::epsilon},
                           {"attention_bias", biases_of_attention()},
                           {"attention_dropout", ConfigKey::Dropout{}},
                           {"use_bidirectional_attention", ConfigKey::Held{"false"}}});
    return common_keys(std::move(own));
}

std::vector<ConfigKey> keys_of_gemma2(ConfigKey cap_of_scores) {
    using enum ConfigKey::Absent;
    return keys_of_gemma({{"hidden_activation", &Decoder::activation},
                          // The first Gemma's key; files of later versions have it beside their own.
                          {"hidden_act", ConfigKey::Held{R"("gelu_pytorch_tanh")"}},
                          {"query_pre_attn_scalar", &Decoder::query_scalar},
                          {"sliding_window", &Decoder::window, none},
                          {"final_logit_softcapping", &Decoder::logits_cap, none},
                          std::move(cap_of_scores)});
}

constexpr DecoderNames names_of_four_norms = {.after_attention = "post_attention_layernorm",
                                              .before_mlp = "pre_feedforward_layernorm",
                                              .after_mlp = "post_feedforward_layernorm"};

void read_windows_of_gemma2(const ConfigFile&, Decoder& parts) {
    for (std::int64_t layer = 0; layer < parts.layers; ++layer) parts.windowed.push_back(layer % 2 == 0);
}

void read_windows_of_gemma3(const ConfigFile& file, Decoder& parts) {
    const std::int64_t pattern =
        file.given("sliding_window_pattern") ? file.integer("sliding_window_pattern") : 6;
    if (pattern < 1) file.refuse("sliding_window_pattern", "which is no number of layers");
    for (std::int64_t layer = 0; layer < parts.layers; ++layer)
        parts.windowed.push_back((layer + 1) % pattern != 0);
}

}  // namespace

const DecoderFamily& gemma_family() {
    static const DecoderFamily row = {
        .model_type = "gemma",
        .architecture = "GemmaForCausalLM",
        .parts = {.key_heads = 16,
                  .head_size = 256,
                  .context = 8192,
                  .epsilon = 1e-6,
                  .tied = true,
                  .one_plus = true,
                  .activation = Activation::gelu_tanh,
                  .root_embedding = true},
        .keys = keys_of_gemma({{"hidden_act", &Decoder::activation},
                               {"hidden_activation", ConfigKey::Held{R"("gelu_pytorch_tanh")"}}}),
        // Its first files say "gelu" and mean gelu_tanh.
        .read =
            [](const ConfigFile&, Decoder& parts) {
                if (parts.activation == Activation::gelu) parts.activation = Activation::gelu_tanh;
            },
        .presets = {{"gemma-2b", "",
                     R"({"num_hidden_layers": 18, "num_attention_heads": 8, "num_key_value_heads": 1,
                         "hidden_size": 2048, "intermediate_size": 16384, "vocab_size": 256000})"}}};
    return row;
}

const DecoderFamily& gemma2_family() {
    static const DecoderFamily row = {
        .model_type = "gemma2",
        .architecture = "Gemma2ForCausalLM",
        .parts = {.key_heads = 4,
                  .head_size = 256,
                  .context = 8192,
                  .epsilon = 1e-6,
                  .tied = true,
                  .window = 4096,
                  .one_plus = true,
                  .activation = Activation::gelu_tanh,
                  .root_embedding = true,
                  .query_scalar = 256,
                  .attention_cap = 50,
                  .logits_cap = 30},
        .names = names_of_four_norms,
        .keys = keys_of_gemma2({"attn_logit_softcapping", &Decoder::attention_cap, ConfigKey::Absent::none}),
        .layer_types = LayerTypes::needed,
        .read = read_windows_of_gemma2,
        .presets = {{"gemma2-2b", "",
                     R"({"num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
                         "hidden_size": 2304, "intermediate_size": 9216, "vocab_size": 256000})"}}};
    return row;
}

const DecoderFamily& gemma3_family() {
    static const DecoderFamily row = {
        .model_type = "gemma3_text",
        .architecture = "Gemma3ForCausalLM",
        .parts = {.key_heads = 4,
                  .head_size = 256,
                  .context = 131072,
                  .epsilon = 1e-6,
                  .rotary = {.theta = 1e6},
                  .tied = true,
                  .window = 4096,
                  .rotary_of_windows = Rotary{},
                  .one_plus = true,
                  .qk_norm = QkNorm::head,
                  .activation = Activation::gelu_tanh,
                  .root_embedding = true,
                  .query_scalar = 256},
        .names = names_of_four_norms,
        .keys = keys_of_gemma2({"attn_logit_softcapping", ConfigKey::Held{"null"}}),
        .layer_types = LayerTypes::needed,
        .own_keys = {"sliding_window_pattern", "_sliding_window_pattern"},
        .read = read_windows_of_gemma3,
        .presets = {
            {"gemma3-270m", "",
             R"({"num_hidden_layers": 18, "num_attention_heads": 4, "num_key_value_heads": 1, "hidden_size": 640,
                 "intermediate_size": 2048, "vocab_size": 262144, "max_position_embeddings": 32768,
                 "sliding_window": 512})"},
            {"gemma3-1b", "",
             R"({"num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1, "hidden_size": 1152,
                 "intermediate_size": 6912, "vocab_size": 262144, "max_position_embeddings": 32768,
                 "sliding_window": 512})"}}};
    return row;
}

}  // namespace mantissa::nn
