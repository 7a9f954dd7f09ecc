// LLaMA's config.json: as transformers 4 and 5 write it, there and back; what is another model is refused in
// one line.
#include "mantissa/nn/decoder/family.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/error_of.h"

namespace mantissa {
namespace {

using Json = nlohmann::json;

/// TinyLlama's, as it is published.
Json published() {
    return {{"architectures", {"LlamaForCausalLM"}},
            {"bos_token_id", 1},
            {"eos_token_id", 2},
            {"hidden_act", "silu"},
            {"hidden_size", 2048},
            {"initializer_range", 0.02},
            {"intermediate_size", 5632},
            {"max_position_embeddings", 2048},
            {"model_type", "llama"},
            {"num_attention_heads", 32},
            {"num_hidden_layers", 22},
            {"num_key_value_heads", 4},
            {"pretraining_tp", 1},
            {"rms_norm_eps", 1e-05},
            {"rope_scaling", nullptr},
            {"tie_word_embeddings", false},
            {"torch_dtype", "float32"},
            {"use_cache", true},
            {"vocab_size", 32000}};
}

using nn::Decoder;
using nn::Rotary;

Decoder read(const Json& json) { return nn::read_decoder_config(json.dump(), "config.json").parts; }

Decoder read(const std::string& text) { return nn::read_decoder_config(text, "ours").parts; }

std::string written(const Decoder& parts, const nn::DecoderFamily& family = nn::llama_family()) {
    return nn::decoder_config_text({.name = "ours", .parts = parts, .family = &family});
}

std::string config_error(const Json& json) {
    const std::string error = testing::error_of([&] { read(json); });
    EXPECT_EQ(error.find('\n'), std::string::npos);
    return error;
}

Json with(const char* name, Json value) {
    Json json = published();
    json[name] = std::move(value);
    return json;
}

TEST(DecoderConfigs, ReadsWhatIsPublished) {
    const Decoder expected{.layers = 22,
                           .heads = 32,
                           .key_heads = 4,
                           .head_size = 64,
                           .channels = 2048,
                           .hidden = 5632,
                           .vocabulary = 32000,
                           .context = 2048,
                           .epsilon = 1e-5};
    EXPECT_EQ(read(published()), expected);
    Decoder other = expected;
    other.head_size = 48;
    EXPECT_EQ(read(with("head_dim", 48)), other);
    other = expected;
    other.tied = true;
    EXPECT_EQ(read(with("tie_word_embeddings", true)), other);
    Json old = published();
    old.erase("num_key_value_heads");
    EXPECT_EQ(read(old).key_heads, 32);
}

TEST(DecoderConfigs, ReadsRotaryPositionsOfEveryVersion) {
    EXPECT_EQ(read(with("rope_theta", 500000.0)).rotary.theta, 500000.0);
    const Rotary linear{.kind = Rotary::Kind::linear, .factor = 4};
    EXPECT_EQ(read(with("rope_scaling", {{"type", "linear"}, {"factor", 4.0}})).rotary, linear);
    EXPECT_EQ(read(with("rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}})).rotary, linear);
    const Json llama3 = {{"rope_type", "llama3"},
                         {"factor", 32.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 8192}};
    Rotary expected{.kind = Rotary::Kind::llama3, .theta = 500000, .factor = 32};
    Json version4 = with("rope_scaling", llama3);
    version4["rope_theta"] = 500000.0;
    EXPECT_EQ(read(version4).rotary, expected);
    Json version5 = with("rope_parameters", llama3);
    version5["rope_parameters"]["rope_theta"] = 500000.0;
    EXPECT_EQ(read(version5).rotary, expected);
    EXPECT_EQ(read(with("rope_parameters", {{"rope_type", "default"}, {"rope_theta", 77.0}})).rotary.theta,
              77.0);
}

TEST(DecoderConfigs, WhatItWritesItReads) {
    for (const Rotary& rotary :
         {Rotary{.theta = 12345.5}, Rotary{.kind = Rotary::Kind::linear, .factor = 2.5},
          Rotary{.kind = Rotary::Kind::llama3,
          .theta = 5e5,
          .factor = 8,
          .low_frequency_factor = 1.5,
          .high_frequency_factor = 3,
          .original_context = 512}})
        for (const bool tied : {false, true}) {
            const Decoder sizes{.layers = 3,
                                .heads = 6,
                                .key_heads = 2,
                                .head_size = 10,
                                .channels = 42,
                                .hidden = 52,
                                .vocabulary = 211,
                                .context = 101,
                                .epsilon = 3e-6,
                                .rotary = rotary,
                                .tied = tied};
            EXPECT_EQ(read(written(sizes)), sizes);
        }
}

/// Mistral 7B's, as it is published.
Json published_mistral() {
    return {{"architectures", {"MistralForCausalLM"}},
            {"bos_token_id", 1},
            {"eos_token_id", 2},
            {"hidden_act", "silu"},
            {"hidden_size", 4096},
            {"initializer_range", 0.02},
            {"intermediate_size", 14336},
            {"max_position_embeddings", 32768},
            {"model_type", "mistral"},
            {"num_attention_heads", 32},
            {"num_hidden_layers", 32},
            {"num_key_value_heads", 8},
            {"rms_norm_eps", 1e-05},
            {"rope_theta", 10000.0},
            {"sliding_window", 4096},
            {"tie_word_embeddings", false},
            {"torch_dtype", "bfloat16"},
            {"transformers_version", "4.34.0.dev0"},
            {"use_cache", true},
            {"vocab_size", 32000}};
}

TEST(DecoderConfigs, ReadsAMistral) {
    Decoder expected{.layers = 32,
                     .heads = 32,
                     .key_heads = 8,
                     .head_size = 128,
                     .channels = 4096,
                     .hidden = 14336,
                     .vocabulary = 32000,
                     .context = 32768,
                     .epsilon = 1e-5,
                     .window = 4096};
    EXPECT_EQ(read(published_mistral()), expected);
    const nn::DecoderConfig config = nn::read_decoder_config(published_mistral().dump(), "config.json");
    const std::string text = written(config.parts, *config.family);
    EXPECT_EQ(Json::parse(text)["model_type"], "mistral");
    EXPECT_EQ(Json::parse(text)["architectures"], Json{"MistralForCausalLM"});
    EXPECT_EQ(Json::parse(text)["sliding_window"], 4096);
    EXPECT_EQ(read(text), expected);
    // Its second version has none.
    Json json = published_mistral();
    json["sliding_window"] = nullptr;
    expected.window = 0;
    EXPECT_EQ(read(json), expected);
    EXPECT_TRUE(Json::parse(written(expected, *config.family))["sliding_window"].is_null());
    EXPECT_EQ(read(written(expected, *config.family)), expected);
    // The library's defaults where nothing is said.
    for (const char* name : {"sliding_window", "num_key_value_heads", "max_position_embeddings"})
        json.erase(name);
    EXPECT_EQ(read(json).window, 4096);
    EXPECT_EQ(read(json).key_heads, 8);
    EXPECT_EQ(read(json).context, 131072);
    json["sliding_window"] = 0;
    EXPECT_EQ(config_error(json), "config.json: sliding_window is 0; without one it is null");
    json["sliding_window"] = -4;
    EXPECT_EQ(config_error(json), "config.json: sliding_window: expected an unsigned integer, found -4");
}

TEST(DecoderConfigs, OtherModelsAreRefusedInOneLine) {
    EXPECT_EQ(
        config_error(with("model_type", "gpt_bigcode"))
            .find("config.json: model_type is \"gpt_bigcode\"; known are \"gpt2\", \"llama\", \"mistral\", "),
        0u);
    EXPECT_EQ(config_error(with("sliding_window", 64)),
              "config.json: sliding_window is 64, a key that is not known here, so it may say what the model "
              "computes; remove it if it does not");
    EXPECT_EQ(config_error(with("hidden_act", "mish")),
              "config.json: hidden_act is \"mish\", only \"silu\", \"swish\", \"gelu\", "
              "\"gelu_pytorch_tanh\", \"gelu_new\", \"relu\" can be run");
    EXPECT_EQ(config_error(with("partial_rotary_factor", 0.5)),
              "config.json: partial_rotary_factor is 0.5, only 1.0 can be run");
    EXPECT_EQ(
        config_error(with("rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.25}})),
        "config.json: partial_rotary_factor is 0.25, only 1.0 can be run");
    EXPECT_EQ(config_error(with("attention_bias", "no")),
              "config.json: attention_bias: expected true or false, found \"no\"");
    EXPECT_EQ(config_error(with("rope_scaling", {{"type", "proportional"}, {"factor", 2.0}})),
              "config.json: rope_scaling.type is \"proportional\"; known are \"default\", \"linear\", "
              "\"llama3\", \"yarn\", \"dynamic\", \"longrope\"");
    EXPECT_EQ(
        config_error(with("rope_parameters", {{"rope_type", "linear"}, {"factor", 2.0}, {"mscale", 1.0}})),
        "config.json: rope_parameters.mscale is 1.0, which \"linear\" has not");
    EXPECT_EQ(config_error(with("rope_scaling", {{"type", "linear"}})),
              "config.json: rotary positions: \"factor\" is missing");
    EXPECT_EQ(config_error(with("rope_scaling", {{"type", "linear"}, {"factor", -2}})),
              "config.json: factor: expected a number above 0, found -2");
    EXPECT_EQ(config_error(with("rope_scaling", "linear")),
              "config.json: rope_scaling: expected an object, found \"linear\"");
    EXPECT_EQ(config_error(with("rope_scaling", {{"rope_type", "llama3"},
                                                 {"factor", 8.0},
                                                 {"low_freq_factor", 4.0},
                                                 {"high_freq_factor", 4.0},
                                                 {"original_max_position_embeddings", 8192}})),
              "config.json: high_freq_factor 4 must be above low_freq_factor 4");
    EXPECT_EQ(config_error(with("num_hidden_layers", "22")),
              "config.json: num_hidden_layers: expected an unsigned integer, found \"22\"");
    EXPECT_EQ(config_error(with("num_attention_heads", 3)),
              "config.json: 2048 channels cannot be shared by 3 heads, and head_dim is not given");
    EXPECT_EQ(config_error(with("rms_norm_eps", 0)),
              "config.json: rms_norm_eps: expected a number above 0, found 0");
    EXPECT_EQ(config_error(with("tie_word_embeddings", "yes")),
              "config.json: tie_word_embeddings: expected true or false, found \"yes\"");
    Json without = published();
    without.erase("vocab_size");
    EXPECT_EQ(config_error(without), "config.json: a llama's configuration: \"vocab_size\" is missing");
    EXPECT_EQ(config_error(Json::array()),
              "config.json: a model's configuration: expected an object, found an array");
}

}  // namespace
}  // namespace mantissa
