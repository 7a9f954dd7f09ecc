// Tokenizers of the kinds that published models have against Hugging Face's `tokenizers`: the fixture is made
// by bench/peers/tokenizer_kinds_fixture.py.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mantissa/base/file.h"
#include "mantissa/data/text_file.h"
#include "mantissa/data/tokenizer_files.h"
#include "tests/data/awkward_strings.h"
#include "tests/data/tokenizer_test_data.h"
#include "tests/support/error_of.h"

namespace mantissa {
namespace {

using Json = nlohmann::json;

constexpr std::size_t block = 100;

const Json& kinds_fixture() {
    static const Json json =
        Json::parse(read_file(std::string(MANTISSA_SOURCE_DIR) + "/tests/data/tokenizer_kinds.json"));
    return json;
}

Tokenizer parsed_kind(const Json& json) { return parse_tokenizer_json({json.dump(), "tokenizer.json"}); }

/// The place in the text of its character `number`.
std::size_t place_of(std::string_view text, std::uint64_t number) {
    std::size_t at = 0;
    for (; number > 0; --number) at += decode_utf8(text, at).length;
    return at;
}

/// As text_number in the script.
std::string text_with_tokens(std::uint64_t i, const Json& added) {
    constexpr const char* spaces[] = {"", " ", "  ", "\n", "a"};
    std::string text = awkward_string(kinds_fixture(), i);
    Random random{i ^ 0x5DEECE66D};
    const std::uint64_t count = i % 2 == 1 ? random.below(4) : 0;
    for (std::uint64_t token = 0; token < count; ++token) {
        const std::size_t place = place_of(text, random.below(characters_of(text) + 1));
        std::string inserted = spaces[random.below(5)];
        inserted += added[random.below(added.size())]["content"].get<std::string>();
        inserted += spaces[random.below(5)];
        text.insert(place, inserted);
    }
    return text;
}

std::uint64_t with_hash(std::uint64_t hash, std::uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) hash = fnv(hash, static_cast<std::uint8_t>(value >> shift));
    return hash;
}

std::uint64_t hash_of_bytes(std::string_view text) {
    std::uint64_t hash = fnv_start;
    for (const char c : text) hash = fnv(hash, static_cast<std::uint8_t>(c));
    return hash;
}

/// Compares the first `blocks` blocks of strings of each kind, from the ids to the text that they become
/// again; and whether a text in parts has the tokens of the whole.
void compare_kinds(std::size_t blocks) {
    for (const auto& [name, kind] : kinds_fixture()["tokenizers"].items()) {
        SCOPED_TRACE(name);
        const Tokenizer tokenizer = parsed_kind(kind["json"]);
        Encoder encoder(tokenizer);
        const auto encoded = kind["encoded"].get<std::string>(), decoded = kind["decoded"].get<std::string>();
        ASSERT_EQ(encoded.size(), 4000u);
        int wrong = 0;
        for (std::size_t number = 0; number < blocks && wrong < 3; ++number) {
            std::uint64_t ids_hash = fnv_start, text_hash = fnv_start;
            for (std::size_t i = number * block; i < (number + 1) * block; ++i) {
                const std::string text = text_with_tokens(i, kind["json"]["added_tokens"]);
                Ids ids, in_parts;
                encoder.encode(text, ids, {.specials = SpecialsInText::as_tokens});
                ids_hash = with_hash(ids_hash, hash_of_ids(ids));
                text_hash = with_hash(text_hash, hash_of_bytes(tokenizer.decode(ids)));
                for (const std::string_view part : cut_text(text, 1 + i % 7, tokenizer.safe_cuts()))
                    encoder.encode(
                        part, in_parts,
                        {.specials = SpecialsInText::as_tokens, .continues = part.data() != text.data()});
                EXPECT_EQ(in_parts, ids) << text;
            }
            const auto digits = [](std::uint64_t hash) { return hexadecimal(hash).substr(0, 4); };
            EXPECT_EQ(digits(ids_hash), encoded.substr(4 * number, 4)) << "ids of block " << number;
            EXPECT_EQ(digits(text_hash), decoded.substr(4 * number, 4)) << "texts of block " << number;
            wrong += ::testing::Test::HasFailure() ? 1 : 0;
        }
    }
}

TEST(TokenizerKinds, AwkwardStringsOfEachKind) { compare_kinds(10); }

TEST(TokenizerKindsSlow, AHundredThousandAwkwardStringsOfEachKind) { compare_kinds(1000); }

TEST(TokenizerKinds, TemplatesAndTheirLikeStandAroundTexts) {
    for (const auto& [name, kind] : kinds_fixture()["tokenizers"].items()) {
        const Tokenizer tokenizer = parsed_kind(kind["json"]);
        Ids ids = tokenizer.parts().first_tokens;
        for (const TokenId id : tokenizer.encode("a")) ids.push_back(id);
        ids.insert(ids.end(), tokenizer.parts().last_tokens.begin(), tokenizer.parts().last_tokens.end());
        EXPECT_EQ(ids, kind["whole"].get<Ids>()) << name;
    }
}

TEST(TokenizerKinds, TextsAreCutForThreads) {
    const std::string text = "Words, and 12 numbers; each of them.\nA line (here) and there! ";
    for (const auto& [name, kind] : kinds_fixture()["tokenizers"].items()) {
        // One strips texts, of others each part changes what is beside it, or is one piece.
        if (name == "each behaviour" || name == "punctuation" || name.find("unigram") != name.npos) continue;
        EXPECT_GT(cut_text(text, 1, parsed_kind(kind["json"]).safe_cuts()).size(), 5u) << name;
    }
}

}  // namespace
}  // namespace mantissa
