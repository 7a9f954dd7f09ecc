// Keys of config.json: each that the configuration classes of Hugging Face's library have is read, held to a
// value or known to be without effect (bench/peers/config_keys_fixture.py lists them); any other is refused.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "mantissa/base/file.h"
#include "mantissa/formats/hf_llama.h"
#include "mantissa/formats/tensor_view.h"
#include "mantissa/nn/language_model.h"
#include "mantissa/nn/models/gpt2.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using Json = nlohmann::json;

class HfConfigKeys : public ::testing::TestWithParam<const char*> {
  protected:
    HfConfigKeys() {
        const Json all =
            Json::parse(read_file(std::string(MANTISSA_SOURCE_DIR) + "/tests/nn/hf_config_keys.json"));
        config_ = all["families"][GetParam()];
        config_["model_type"] = GetParam();
    }
    /// Fault of this config.json; "no error" where it can be run.
    std::string read(const Json& config) const {
        return testing::error_of([&] {
            if (GetParam() != std::string("gpt2")) {
                read_hf_llama_config(config.dump(), "config.json");
                return;
            }
            std::ofstream(directory_ / "config.json") << config.dump();
            const std::vector<TensorView> weights = {
                {.name = "wte.weight", .shape = {config["vocab_size"], config["n_embd"]}},
                {.name = "wpe.weight", .shape = {config["n_positions"], config["n_embd"]}},
                {.name = "ln_f.bias", .shape = {config["n_embd"]}}};
            std::vector<TensorView> all = weights;
            for (int layer = 0; layer < config["n_layer"]; ++layer)
                all.push_back({.name = "h." + std::to_string(layer) + ".ln_1.weight", .shape = {}});
            nn::gpt2_config_of(all, "model.safetensors", directory_.path());
        });
    }
    Json with(const char* key, Json value) const {
        Json other = config_;
        other[key] = std::move(value);
        return other;
    }

    Json config_;
    TemporaryDirectory directory_;
};

TEST_P(HfConfigKeys, OfItsClassAreKnown) {
    EXPECT_GT(config_.size(), 60u);
    EXPECT_EQ(read(config_), "no error");
}

TEST_P(HfConfigKeys, OfAnotherClassAreRefused) {
    for (const auto& [key, value] :
         std::initializer_list<std::pair<const char*, Json>>{{"use_bidirectional_attention", true},
                                                             {"attn_logit_softcapping", 50.0},
                                                             {"num_experts", 8},
                                                             {"embedding_multiplier", 12.0}})
        EXPECT_NE(read(with(key, value))
                      .find(std::string(key) + " is " + value.dump() + ", a key that is not known here"),
                  std::string::npos)
            << read(with(key, value));
    for (const auto& [key, value] : std::initializer_list<std::pair<const char*, Json>>{
             {"quantization_config", {{"quant_method", "gptq"}}},
             {"is_encoder_decoder", true},
             {"add_cross_attention", true},
             {"per_layer_config", {{"1", {{"head_dim", 3}}}}}})
        EXPECT_NE(read(with(key, value)).find("no model that has it can be run"), std::string::npos) << key;
}

INSTANTIATE_TEST_SUITE_P(Families, HfConfigKeys, ::testing::Values("gpt2", "llama", "mistral"),
                         [](const auto& family) { return std::string(family.param); });

class LayerTypes : public HfConfigKeys {
  protected:
    LayerTypes() {
        config_["num_hidden_layers"] = 2;
        config_.erase("layer_types");
    }
    std::int64_t window_of(const Json& types) const {
        return read_hf_llama_config(with("layer_types", types).dump(), "config.json").window;
    }
};

/// transformers takes a Mistral with layer_types for a Ministral, whose layers follow them.
TEST_P(LayerTypes, SayWhetherTheWindowCounts) {
    const Json sliding = {"sliding_attention", "sliding_attention"},
               full = {"full_attention", "full_attention"}, mixed = {"sliding_attention", "full_attention"};
    const bool is_mistral = GetParam() == std::string("mistral");
    EXPECT_EQ(window_of(nullptr), is_mistral ? 4096 : 0);
    EXPECT_EQ(window_of(full), 0);
    const auto refused = [](const std::string& kinds) {
        return "config.json: layer_types has " + kinds +
               "; only layers that all have full_attention, or all of a Mistral with a sliding_window "
               "sliding_attention, can be run";
    };
    EXPECT_EQ(read(with("layer_types", mixed)), refused("\"full_attention\" and \"sliding_attention\""));
    EXPECT_EQ(read(with("layer_types", sliding)), is_mistral ? "no error" : refused("\"sliding_attention\""));
    EXPECT_EQ(window_of(is_mistral ? sliding : full), is_mistral ? 4096 : 0);
    EXPECT_NE(read(with("layer_types", {"full_attention"})).find("expected a list of 2 layers"),
              std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Families, LayerTypes, ::testing::Values("llama", "mistral"),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace mantissa
