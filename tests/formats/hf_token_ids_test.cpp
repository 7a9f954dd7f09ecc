// Ids that begin and end a text, in the files beside a model. transformers 5.24 reads the same from each
// (GenerationConfig.from_pretrained, else AutoConfig.from_pretrained).
#include "mantissa/formats/hf_token_ids.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "mantissa/nn/decoder/family.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using Ids = std::vector<std::int64_t>;

void write(const std::filesystem::path& path, const std::string& text) { std::ofstream(path) << text; }

TEST(HfTokenIds, GenerationConfigSpeaksBeforeConfig) {
    const TemporaryDirectory directory;
    EXPECT_TRUE(read_hf_token_ids(directory.path()).ends.empty());
    write(directory / "config.json", R"({"bos_token_id": 1, "eos_token_id": [2, 258]})");
    EXPECT_EQ(read_hf_token_ids(directory.path()).ends, (Ids{2, 258}));
    write(directory / "generation_config.json", R"({"bos_token_id": null, "eos_token_id": 259})");
    EXPECT_EQ(read_hf_token_ids(directory.path()).ends, (Ids{259}));
    EXPECT_EQ(read_hf_token_ids(directory.path()).begin, 1);
}

TEST(HfTokenIds, WhatEarlierVersionsWroteIsNotAsked) {
    const TemporaryDirectory directory;
    write(directory / "config.json", R"({"bos_token_id": 511, "eos_token_id": 511})");
    write(directory / "state.json", "{}");
    EXPECT_TRUE(read_hf_token_ids(directory.path()).ends.empty());
    EXPECT_FALSE(read_hf_token_ids(directory.path()).begin);
}

/// Left out, LlamaConfig would take 1 and 2, and GPT2Config 50256.
TEST(HfTokenIds, AreNullWhereThereAreNone) {
    for (const std::string& text :
         {nn::decoder_config_text({.name = "ours",
         .parts = {.layers = 1, .heads = 1, .key_heads = 1, .head_size = 2, .channels = 2, .hidden = 2}}),
          nn::decoder_config_text(nn::decoder_config("gpt2-tiny"))}) {
        const nlohmann::json none = nlohmann::json::parse(with_token_ids(text, {}));
        EXPECT_TRUE(none.at("bos_token_id").is_null());
        EXPECT_TRUE(none.at("eos_token_id").is_null());
        const nlohmann::json some = nlohmann::json::parse(with_token_ids(text, {.begin = 3, .ends = {4, 5}}));
        EXPECT_EQ(some["bos_token_id"], 3);
        EXPECT_EQ(some["eos_token_id"], (Ids{4, 5}));
        EXPECT_EQ(some.size(), none.size());
    }
}

}  // namespace
}  // namespace mantissa
