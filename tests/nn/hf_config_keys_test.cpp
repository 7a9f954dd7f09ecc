// Keys of config.json: each that the configuration classes of Hugging Face's library have is read, held to a
// value or known to be without effect (bench/peers/config_keys_fixture.py lists them); any other is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mantissa/base/file.h"
#include "mantissa/nn/decoder/family.h"
#include "tests/support/error_of.h"

namespace mantissa {
namespace {

using Json = nlohmann::json;

class HfConfigKeys : public ::testing::TestWithParam<std::string> {
  protected:
    HfConfigKeys() {
        const Json all =
            Json::parse(read_file(std::string(MANTISSA_SOURCE_DIR) + "/tests/nn/hf_config_keys.json"));
        config_ = all["families"][GetParam()];
        config_.update(all["of_all"]);
        config_["model_type"] = GetParam();
    }
    /// Fault of this config.json; "no error" where it can be run.
    std::string read(const Json& config) const {
        return testing::error_of([&] { nn::read_decoder_config(config.dump(), "config.json"); });
    }
    Json with(const char* key, Json value) const {
        Json other = config_;
        other[key] = std::move(value);
        return other;
    }

    Json config_;
};

TEST_P(HfConfigKeys, OfItsClassAreKnown) {
    EXPECT_GT(config_.size(), 60u);
    EXPECT_EQ(read(config_), "no error");
}

TEST_P(HfConfigKeys, OfAnotherClassAreRefused) {
    for (const auto& [key, value] : std::initializer_list<std::pair<const char*, Json>>{
             {"clip_qkv", 8.0}, {"logit_scale", 0.0625}, {"num_experts", 8}, {"use_qk_norm", true}})
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

/// A run says what its files tell of dropout, whatever the family calls it.
TEST_P(HfConfigKeys, OfDropoutAreToldOf) {
    if (GetParam() == "gpt2") return;
    const nn::DecoderFamily* family = nn::read_decoder_config(config_.dump(), "config.json").family;
    const std::vector<std::string_view> told = nn::dropout_keys(*family);
    for (const auto& [key, value] : config_.items()) {
        // Heads that classify are no part of these models.
        const bool is_dropout = key.find("drop") != std::string::npos && key != "classifier_dropout";
        EXPECT_EQ(std::ranges::find(told, key) != told.end(), is_dropout) << key;
    }
}

std::vector<std::string> families() {
    const Json all =
        Json::parse(read_file(std::string(MANTISSA_SOURCE_DIR) + "/tests/nn/hf_config_keys.json"));
    std::vector<std::string> names;
    for (const auto& [name, keys] : all["families"].items()) names.push_back(name);
    return names;
}

TEST(HfConfigKeysOfAll, EveryFamilyIsAmongThem) {
    const std::vector<std::string> names = families();
    for (const nn::DecoderFamily* family : nn::decoder_families())
        EXPECT_NE(std::ranges::find(names, family->model_type), names.end()) << family->model_type;
}

INSTANTIATE_TEST_SUITE_P(Families, HfConfigKeys, ::testing::ValuesIn(families()),
                         [](const auto& family) { return family.param; });

class LayerTypes : public HfConfigKeys {
  protected:
    LayerTypes() {
        config_["num_hidden_layers"] = 2;
        config_.erase("layer_types");
    }
    nn::Decoder read_with(const Json& types) const {
        return nn::read_decoder_config(with("layer_types", types).dump(), "config.json").parts;
    }
};

/// transformers takes a Mistral with layer_types for a Ministral, whose layers follow them.
TEST_P(LayerTypes, SayWhichLayersHaveTheWindow) {
    const Json sliding = {"sliding_attention", "sliding_attention"},
               full = {"full_attention", "full_attention"}, mixed = {"sliding_attention", "full_attention"};
    const bool is_mistral = GetParam() == "mistral";
    EXPECT_EQ(read_with(nullptr).window, is_mistral ? 4096 : 0);
    EXPECT_EQ(read_with(full).window, 0);
    for (const Json& types : {sliding, mixed})
        EXPECT_EQ(read(with("layer_types", types)),
                  is_mistral ? "no error"
                             : "config.json: layer_types has \"sliding_attention\", but the model has no "
                               "sliding_window that counts");
    if (is_mistral) {
        EXPECT_EQ(read_with(sliding).window, 4096);
        EXPECT_TRUE(read_with(sliding).windowed.empty());
        EXPECT_TRUE(read_with(mixed).has_window(0));
        EXPECT_FALSE(read_with(mixed).has_window(1));
    }
    EXPECT_EQ(read(with("layer_types", {"chunked_attention", "full_attention"})),
              "config.json: layer_types has \"chunked_attention\"; known are \"full_attention\" and "
              "\"sliding_attention\"");
    EXPECT_NE(read(with("layer_types", {"full_attention"})).find("expected a list of 2 layers"),
              std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Families, LayerTypes, ::testing::Values("llama", "mistral"),
                         [](const auto& family) { return family.param; });

class IgnoredLayerTypes : public LayerTypes {
  protected:
    IgnoredLayerTypes() { config_["sliding_window"] = 7; }
};

/// transformers gives all layers of these families the window, whatever the list says.
TEST_P(IgnoredLayerTypes, AreRefusedWhereTheySayAnother) {
    EXPECT_EQ(read_with({"sliding_attention", "sliding_attention"}).window, 7);
    for (const char* first : {"sliding_attention", "full_attention"})
        EXPECT_EQ(read(with("layer_types", {first, "full_attention"})),
                  "config.json: layer_types has \"full_attention\", but all layers of a " + GetParam() +
                      " have the window; remove layer_types");
}

INSTANTIATE_TEST_SUITE_P(Families, IgnoredLayerTypes, ::testing::Values("phi3", "starcoder2"),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace mantissa
