// OPT: Zhang et al., "OPT: Open pre-trained transformer language models", 2022. Learned positions from the
// third row on; only sizes with norms before the layers.
#include "mantissa/nn/families/families.h"

namespace mantissa::inline v0::nn {

namespace {

std::vector<ConfigKey> keys_of_opt() {
    std::vector<ConfigKey> keys = common_keys(
        {{"ffn_dim", &Decoder::hidden, ConfigKey::Absent::refused},
         {"activation_function", &Decoder::activation},
         {"enable_bias", ConfigKey::Flags{&Decoder::bias_qkv, &Decoder::bias_output, &Decoder::bias_mlp}},
         {"do_layer_norm_before", ConfigKey::Held{"true"}},
         {"_remove_final_layer_norm", ConfigKey::Held{"false"}},
         {"layer_norm_elementwise_affine", ConfigKey::Held{"true"}},
         {"attention_dropout", ConfigKey::Dropout{}},
         {"dropout", ConfigKey::Dropout{}},
         {"layerdrop", ConfigKey::Dropout{}},
         {"init_std", ConfigKey::NoEffect{}}});
    std::erase_if(keys, [](const ConfigKey& key) { return key.name == "intermediate_size"; });
    return keys;
}

}  // namespace

const DecoderFamily& opt_family() {
    static const DecoderFamily row = {
        .model_type = "opt",
        .architecture = "OPTForCausalLM",
        .parts = {.tied = true,
                  .learned_positions = true,
                  .first_position = 2,
                  .layer_norms = true,
                  .bias_qkv = true,
                  .bias_output = true,
                  .bias_mlp = true,
                  .activation = Activation::relu,
                  .gated = false},
        .names = {.body = "model.decoder",
                  .positions = "embed_positions",
                  .last_norm = "final_layer_norm",
                  .before_attention = "self_attn_layer_norm",
                  .before_mlp = "final_layer_norm",
                  .output = "out_proj",
                  .mlp = "",
                  .up = "fc1",
                  .down = "fc2"},
        .keys = keys_of_opt(),
        .own_keys = {"word_embed_proj_dim"},
        .read =
            [](const ConfigFile& file, Decoder& parts) {
                if (file.given("word_embed_proj_dim") &&
                    file.integer("word_embed_proj_dim") != parts.channels)
                    file.refuse("word_embed_proj_dim", "only that of hidden_size can be run");
            },
        .presets = {
            {"opt-125m", "",
             R"({"num_hidden_layers": 12, "num_attention_heads": 12, "hidden_size": 768, "ffn_dim": 3072,
                         "vocab_size": 50272, "max_position_embeddings": 2048})"}}};
    return row;
}

}  // namespace mantissa::nn
