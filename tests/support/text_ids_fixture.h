// tests/data/text_ids.json: tokenizers, texts, and their ids by Hugging Face's tokenizers.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "mantissa/base/file.h"
#include "mantissa/data/tokenizer.h"

namespace mantissa::testing {

struct TokenizerOfFixture {
    std::string name;
    std::string json, config;                        ///< tokenizer.json and tokenizer_config.json
    std::vector<std::vector<TokenId>> tokens, text;  ///< of each text, with and without special tokens in it
    TokenId end;                                     ///< by AutoTokenizer
};

struct TextIds {
    std::vector<std::string> texts;
    std::vector<TokenizerOfFixture> tokenizers;

    TextIds() {
        const auto all =
            nlohmann::json::parse(read_file(std::string(MANTISSA_SOURCE_DIR) + "/tests/data/text_ids.json"));
        texts = all["texts"].get<std::vector<std::string>>();
        for (const auto& [name, kind] : all["tokenizers"].items())
            tokenizers.push_back({name, kind["json"].dump(), kind["config"].dump(), kind["tokens"],
                                  kind["text"], kind["end"]});
    }
    const TokenizerOfFixture& named(const std::string& name) const {
        for (const TokenizerOfFixture& kind : tokenizers)
            if (kind.name == name) return kind;
        throw std::out_of_range(name);
    }
};

}  // namespace mantissa::testing
