// JSON that carries its own checksum: each changed byte is seen, and other formats and versions are refused.
#include "mantissa/formats/strict_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/error_of.h"

namespace mantissa {
namespace {

using testing::error_of;

std::string seal_error(std::string_view text, std::string_view format = "ours", std::uint64_t version = 1) {
    return error_of([&] { parse_sealed_json(text, "a.json", format, version); });
}

std::string sealed() { return sealed_json_text({{"format", "ours"}, {"version", 1}, {"tokens", 12}}); }

TEST(SealedJson, WhatWasSealedIsRead) {
    EXPECT_EQ(parse_sealed_json(sealed(), "a.json", "ours", 1).at("tokens"), 12);
}

TEST(SealedJson, EachChangedByteIsSeen) {
    const std::string text = sealed();
    for (std::size_t i = 0; i < text.size(); ++i) {
        std::string changed = text;
        changed[i] = static_cast<char>(changed[i] ^ 1);
        EXPECT_EQ(seal_error(changed), "a.json: differs from the checksum in its first line") << "byte " << i;
    }
    EXPECT_EQ(seal_error(text.substr(0, text.size() - 1)),
              "a.json: differs from the checksum in its first line");
    EXPECT_EQ(seal_error(""), "a.json: differs from the checksum in its first line");
}

TEST(SealedJson, AnotherFormatOrVersionIsRefused) {
    EXPECT_EQ(seal_error(sealed(), "theirs"), "a.json: expected the format \"theirs\"");
    EXPECT_EQ(seal_error(sealed(), "ours", 2), "a.json: ours version 1, this program reads 2");
}

TEST(SealedJson, AChecksumIsOfHexadecimalDigitsAlone) {
    EXPECT_EQ(require_checksum("00000000000000ff", "a.json", "xxh3"), 255u);
    EXPECT_EQ(error_of([] { require_checksum("00ffzz", "a.json", "xxh3"); }),
              "a.json: xxh3: expected a checksum, found \"00ffzz\"");
}

}  // namespace
}  // namespace mantissa
