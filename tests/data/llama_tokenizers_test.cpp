// Tokenizers as LLaMAs have them against Hugging Face's `tokenizers`: the fixture is made by
// bench/peers/llama_tokenizer_fixture.py and holds small ones of each kind, as tokenizer.json spells them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mantissa/base/file.h"
#include "mantissa/base/thread_pool.h"
#include "mantissa/data/encode_text.h"
#include "mantissa/data/tokenizer_files.h"
#include "tests/data/awkward_strings.h"
#include "tests/data/tokenizer_test_data.h"
#include "tests/support/error_of.h"

namespace mantissa {
namespace {

using Json = nlohmann::json;

const Json& llama_fixture() {
    static const Json json =
        Json::parse(read_file(std::string(MANTISSA_SOURCE_DIR) + "/tests/data/llama_tokenizers.json"));
    return json;
}

const Json& specification(const char* name) { return llama_fixture()["tokenizers"][name]["json"]; }

Tokenizer parsed(const Json& json) { return parse_tokenizer_json({json.dump(), "tokenizer.json"}); }

/// As text_number in the script.
std::string text_number(std::uint64_t i) {
    const std::string text = awkward_string(llama_fixture(), i);
    constexpr const char* space = "\u2581";
    return i % 3 != 0 ? text
                      : text + "</s>" + space + awkward_string(llama_fixture(), i + 1) + "<s> " + space;
}

/// The last four digits that the script keeps.
std::string digits_of(std::uint64_t hash) { return hexadecimal(hash).substr(0, 4); }

std::uint64_t hash_of_text(std::string_view text) {
    std::uint64_t hash = fnv_start;
    for (const char c : text) hash = fnv(hash, static_cast<std::uint8_t>(c));
    return hash;
}

TEST(LlamaTokenizers, TenThousandStringsOfEachKind) {
    for (const auto& [name, kind] : llama_fixture()["tokenizers"].items()) {
        SCOPED_TRACE(name);
        const Tokenizer tokenizer = parsed(kind["json"]);
        Encoder encoder(tokenizer);
        const auto encoded = kind["encoded"].get<std::string>(), decoded = kind["decoded"].get<std::string>();
        ASSERT_EQ(encoded.size(), 40000u);
        int wrong = 0;
        for (std::size_t i = 0; i < 10000 && wrong < 5; ++i) {
            const std::string text = text_number(i);
            Ids ids;
            encoder.encode(text, ids);
            const std::string back = tokenizer.decode(ids);
            if (digits_of(hash_of_ids(ids)) == encoded.substr(4 * i, 4) &&
                digits_of(hash_of_text(back)) == decoded.substr(4 * i, 4))
                continue;
            ADD_FAILURE() << "string " << i << ": " << text << "\nbecomes " << back;
            ++wrong;
        }
        // The comparison bites: one token changed changes the hash.
        Ids ids = tokenizer.encode(text_number(1));
        ids[0] ^= 1;
        EXPECT_NE(digits_of(hash_of_ids(ids)), encoded.substr(4, 4));
    }
}

TEST(LlamaTokenizers, WholeTextsBeginWithTheTokensOfTheTemplate) {
    for (const auto& [name, kind] : llama_fixture()["tokenizers"].items()) {
        const Tokenizer tokenizer = parsed(kind["json"]);
        Ids ids = tokenizer.parts().first_tokens;
        EXPECT_EQ(ids, (Ids{*tokenizer.special("<s>")}));
        for (const TokenId id : tokenizer.encode("a")) ids.push_back(id);
        EXPECT_EQ(ids, kind["first"].get<Ids>()) << name;
    }
}

TEST(LlamaTokenizers, WhatTheVocabularyLacksFallsBackToBytesAndComesBack) {
    const Tokenizer tokenizer = parsed(specification("sentencepiece"));
    const Ids ids = tokenizer.encode("\u4e09");
    ASSERT_EQ(ids.size(), 4u);  // a space, then three bytes
    EXPECT_EQ((Ids{ids.begin() + 1, ids.end()}), (Ids{3 + 0xE4, 3 + 0xB8, 3 + 0x89}));
    EXPECT_EQ(tokenizer.decode(ids), "\u4e09");
    // Bytes that are not UTF-8 at all, too.
    EXPECT_EQ(tokenizer.decode(tokenizer.encode("a\xFF\xC3 b")), "a\xFF\xC3 b");
    // A token that continues a text keeps its space.
    StreamDecoder stream(tokenizer);
    std::string text;
    for (const TokenId id : tokenizer.encode("the king")) text += stream.push(id);
    EXPECT_EQ(text, " the king");
}

TEST(LlamaTokenizers, ATextInPartsHasTheTokensOfTheWhole) {
    std::string text;
    for (std::uint64_t i = 0; text.size() < 3 << 20; ++i) text += awkward_string(llama_fixture(), i % 500);
    ThreadPool pool(3);
    for (const auto& [name, kind] : llama_fixture()["tokenizers"].items()) {
        if (name == "tokens across spaces") continue;  // no cut is safe
        const Tokenizer tokenizer = parsed(kind["json"]);
        Ids parts;
        encode_text(tokenizer, text, pool, [&](std::span<const TokenId> ids, std::size_t) {
            parts.insert(parts.end(), ids.begin(), ids.end());
        });
        EXPECT_TRUE(parts == tokenizer.encode(text)) << name;
    }
}

TEST(LlamaTokenizers, OnlyVocabulariesWithoutTokensAcrossSpacesAreCut) {
    const Tokenizer words = parsed(specification("sentencepiece"));
    const Tokenizer across = parsed(specification("tokens across spaces"));
    EXPECT_EQ(words.parts().pipeline.cuts.size(), 1u);
    EXPECT_EQ(across.parts().pipeline.cuts.size(), 0u);
    const std::string text = "one two  three";
    EXPECT_EQ(words.safe_cuts().next(text, 1), 3u);
    EXPECT_EQ(words.safe_cuts().next(text, 4), 7u);
    EXPECT_EQ(words.safe_cuts().next(text, 8), text.size());
    EXPECT_EQ(across.safe_cuts().next(text, 1), text.size());
    EXPECT_EQ(parsed(specification("byte level")).safe_cuts().next("!\n a b", 1), 4u);
}

TEST(LlamaTokenizers, OtherPipelinesAreRefusedByName) {
    const auto with = [](const char* name, const char* pointer, Json value) {
        Json json = specification(name);
        json[Json::json_pointer(pointer)] = std::move(value);
        return testing::error_of([&] { parsed(json); });
    };
    const auto text = [&](const char* pointer, Json value) {
        return with("sentencepiece", pointer, std::move(value));
    };
    const auto bytes = [&](const char* pointer, Json value) {
        return with("byte level", pointer, std::move(value));
    };
    const auto says = [](const std::string& message, const std::string& part) {
        EXPECT_TRUE(message.starts_with("tokenizer.json: ")) << message;
        EXPECT_NE(message.find(part), std::string::npos) << message;
        EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    };
    says(text("/normalizer", {{"type", "Lowercase"}}), "the normalizer Lowercase is not supported");
    says(text("/normalizer/normalizers/0",
              {{"type", "Replace"}, {"pattern", {{"Regex", "a*"}}}, {"content", ""}}),
         "an expression that may match nothing in the pattern \"a*\" is not supported");
    says(text("/normalizer", nullptr), "a tokenizer that leaves spaces as they are is not supported");
    says(text("/pre_tokenizer", {{"type", "FixedLength"}}), "the pre_tokenizer FixedLength is not supported");
    says(text("/normalizer/normalizers/2", {{"type", "NFKC"}}), "NFKC behind a Replace of spaces");
    says(text("/decoder", nullptr), "a decoder that does not make spaces and bytes again");
    says(text("/decoder/decoders/3/start", 2), "a Strip of anything but one space at the start");
    says(text("/decoder/decoders/2/type", "CTC"), "the decoder CTC is not supported");
    says(text("/decoder/decoders/2", {{"type", "ByteFallback"}}), "a Strip of each token is not supported");
    says(text("/post_processor/single/1", {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}),
         "a template with the text 0 times is not supported");
    says(text("/post_processor/type", "Other"), "the post_processor Other");
    says(text("/post_processor/special_tokens", Json::object()), "\"<s>\" is missing");
    says(text("/model/vocab/a b", 859), "holds a space, which is spelled U+2581");
    Json no_byte = specification("sentencepiece");
    no_byte["model"]["vocab"].erase("<0x41>");
    no_byte["model"]["vocab"]["\u4e09"] = 3 + 0x41;
    says(testing::error_of([&] { parsed(no_byte); }),
         "byte_fallback needs a token for every byte, and <0x41> is missing");
    says(with("metaspace at the start", "/pre_tokenizer/replacement", "_"), "the Metaspace of \"_\"");
    says(with("metaspace at the start", "/pre_tokenizer/prepend_scheme", "often"), "the prepend_scheme");
    says(bytes("/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\w+"),
         "\\w in the pattern \"\\\\w+\" is not supported");
    says(bytes("/pre_tokenizer/pretokenizers/0/behavior", "Often"),
         "the behavior \"Often\" is not supported");
    says(bytes("/pre_tokenizer/pretokenizers/2", {{"type", "Digits"}}),
         "the pre_tokenizer Digits behind ByteLevel");
}

}  // namespace
}  // namespace mantissa
