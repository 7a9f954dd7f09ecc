// Shared by the tokenizer's tests: GPT-2's files if they are at hand, and a small tokenizer that always is.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/data/tokenizer_files.h"

namespace mantissa {

using Ids = std::vector<TokenId>;

/// The folder of data that is not part of the source: MANTISSA_TEST_DATA, else shared/data beside the source.
inline std::optional<std::filesystem::path> shared_data() {
    if (const char* given = std::getenv("MANTISSA_TEST_DATA")) return given;
    for (const char* place : {"../shared/data", "../../shared/data"}) {
        auto path = std::filesystem::path(MANTISSA_SOURCE_DIR) / place;
        if (std::filesystem::is_directory(path)) return path;
    }
    return std::nullopt;
}

#define MANTISSA_SKIP_WITHOUT_SHARED_DATA()                                                \
    if (!shared_data())                                                                    \
    GTEST_SKIP() << "no files of GPT-2's tokenizer: set MANTISSA_TEST_DATA to the folder " \
                    "that holds gpt2/ and tinyshakespeare.txt"

inline Tokenizer load_gpt2() { return load_tokenizer(*shared_data() / "gpt2"); }

/// 256 bytes, in order of their values, then "he", "ll", "llo", "hello", " hello", then <|endoftext|> (261).
inline TokenizerParts small_parts() {
    TokenizerParts parts;
    parts.source = "small";
    for (int byte = 0; byte < 256; ++byte) parts.tokens.emplace_back(1, static_cast<char>(byte));
    const auto join = [&](TokenId left, TokenId right) {
        parts.merges.push_back({left, right, static_cast<TokenId>(parts.tokens.size())});
        parts.tokens.push_back(parts.tokens[left] + parts.tokens[right]);
    };
    join('h', 'e');
    join('l', 'l');
    join(257, 'o');
    join(256, 258);
    join(' ', 259);
    parts.specials.push_back({"<|endoftext|>", 261});
    parts.tokens.emplace_back("<|endoftext|>");
    return parts;
}

}  // namespace mantissa
