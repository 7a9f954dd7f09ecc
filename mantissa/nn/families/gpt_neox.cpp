// GPT-NeoX: Black et al., "GPT-NeoX-20B", 2022, and Pythia (Biderman et al. 2023). Attention and feed-forward
// read one input, each through its own norm; a fourth of each head turns.
#include "mantissa/nn/families/families.h"

namespace mantissa::inline v0::nn {

const DecoderFamily& gpt_neox_family() {
    static const DecoderFamily row = {
        .model_type = "gpt_neox",
        .architecture = "GPTNeoXForCausalLM",
        .parts = {.rotary = {.part = 0.25},
                  .layer_norms = true,
                  .bias_qkv = true,
                  .bias_output = true,
                  .bias_mlp = true,
                  .qkv_rows = QkvRows::heads,
                  .activation = Activation::gelu,
                  .gated = false,
                  .parallel = true},
        .names = {.body = "gpt_neox",
                  .embedding = "embed_in",
                  .last_norm = "final_layer_norm",
                  .head = "embed_out",
                  .attention = "attention",
                  .qkv = "query_key_value",
                  .output = "dense",
                  .up = "dense_h_to_4h",
                  .down = "dense_4h_to_h"},
        .keys = common_keys({{"hidden_act", &Decoder::activation},
                             {"layer_norm_eps", &Decoder::epsilon},
                             {"use_parallel_residual", ConfigKey::Flags{&Decoder::parallel}},
                             {"attention_bias", biases_of_attention()},
                             {"attention_dropout", ConfigKey::Dropout{}},
                             {"hidden_dropout", ConfigKey::Dropout{}},
                             {"classifier_dropout", ConfigKey::NoEffect{}}}),
        .turns_parts = true,
        .theta_key = "rotary_emb_base",
        .part_key = "rotary_pct",
        .presets = {
            {"pythia-70m", "",
             R"({"num_hidden_layers": 6, "num_attention_heads": 8, "hidden_size": 512, "intermediate_size": 2048,
                 "vocab_size": 50304, "max_position_embeddings": 2048})"},
            {"pythia-160m", "",
             R"({"num_hidden_layers": 12, "num_attention_heads": 12, "hidden_size": 768,
                 "intermediate_size": 3072, "vocab_size": 50304, "max_position_embeddings": 2048})"},
            {"pythia-410m", "",
             R"({"num_hidden_layers": 24, "num_attention_heads": 16, "hidden_size": 1024,
                 "intermediate_size": 4096, "vocab_size": 50304, "max_position_embeddings": 2048})"}}};
    return row;
}

}  // namespace mantissa::nn
