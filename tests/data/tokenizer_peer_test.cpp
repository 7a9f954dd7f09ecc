// Our tokenizer against tiktoken and Hugging Face's: the fixture is made by bench/peers/tokenizer_fixture.py,
// whose generator of strings is repeated here.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mantissa/base/file.h"
#include "mantissa/data/text_file.h"
#include "mantissa/data/tokenizer_alphabet.h"
#include "mantissa/data/tokenizer_train.h"
#include "mantissa/data/unicode.h"
#include "tests/data/tokenizer_test_data.h"

namespace mantissa {

namespace {

const nlohmann::json& fixture() {
    static const auto json = nlohmann::json::parse(
        read_file(std::string(MANTISSA_SOURCE_DIR) + "/tests/data/tokenizer_fixture.json"));
    return json;
}

struct Random {  // splitmix64
    std::uint64_t state;
    std::uint64_t below(std::uint64_t bound) {
        state += 0x9E3779B97F4A7C15;
        std::uint64_t z = state;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
        return (z ^ (z >> 31)) % bound;
    }
};

std::string string_number(std::uint64_t number) {
    const auto& fragments = fixture()["fragments"];
    const auto& ranges = fixture()["ranges"];
    Random random{number};
    std::string text;
    const auto parts = 1 + random.below(12);
    for (std::uint64_t part = 0; part < parts; ++part) {
        const auto kind = random.below(4);
        if (kind < 2) {
            text += fragments[random.below(fragments.size())].get<std::string>();
        } else if (kind == 2) {
            const auto& range = ranges[random.below(ranges.size())];
            const auto first = range[0].get<std::uint64_t>(), last = range[1].get<std::uint64_t>();
            const auto count = 1 + random.below(6);
            for (std::uint64_t i = 0; i < count; ++i)
                append_utf8(text, static_cast<char32_t>(first + random.below(last - first + 1)));
        } else {
            const auto fragment = fragments[random.below(fragments.size())].get<std::string>();
            const auto times = 1 + random.below(40);
            for (std::uint64_t i = 0; i < times; ++i) text += fragment;
        }
    }
    return text;
}

constexpr std::uint64_t fnv_start = 0xCBF29CE484222325;

std::uint64_t fnv(std::uint64_t hash, std::uint8_t byte) { return (hash ^ byte) * 0x100000001B3; }

std::uint64_t hash_of_ids(std::span<const TokenId> ids) {
    std::uint64_t hash = fnv_start;
    for (const TokenId id : ids)
        for (int shift = 0; shift < 32; shift += 8) hash = fnv(hash, static_cast<std::uint8_t>(id >> shift));
    return hash;
}

std::string hexadecimal(std::uint64_t value) {
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(value));
    return digits;
}

}  // namespace

TEST(TokenizerPeer, HelloWorld) {
    MANTISSA_SKIP_WITHOUT_SHARED_DATA();
    EXPECT_EQ(load_gpt2().encode("Hello world"), (std::vector<TokenId>{15496, 995}));
}

TEST(TokenizerPeer, TenThousandRandomAndAwkwardStrings) {
    MANTISSA_SKIP_WITHOUT_SHARED_DATA();
    const Tokenizer tokenizer = load_gpt2();
    Encoder encoder(tokenizer);
    const auto hashes = fixture()["hashes"].get<std::string>();
    ASSERT_EQ(hashes.size(), 80000u);
    int wrong = 0;
    for (std::size_t i = 0; i < 10000; ++i) {
        std::vector<TokenId> ids;
        const std::string text = string_number(i);
        encoder.encode(text, ids);
        ASSERT_EQ(tokenizer.decode(ids), text) << "string " << i;
        if (hexadecimal(hash_of_ids(ids)).substr(0, 8) == hashes.substr(8 * i, 8)) continue;
        ADD_FAILURE() << "string " << i << ": " << text;
        if (++wrong == 10) FAIL() << "and more";
    }
    // The comparison bites: one token changed changes the hash.
    auto ids = tokenizer.encode(string_number(0));
    ids[0] ^= 1;
    EXPECT_NE(hexadecimal(hash_of_ids(ids)).substr(0, 8), hashes.substr(0, 8));
}

TEST(TokenizerPeer, WholeText) {
    MANTISSA_SKIP_WITHOUT_SHARED_DATA();
    const TextFile text(*shared_data() / "tinyshakespeare.txt");
    const auto ids = load_gpt2().encode(text.text());
    EXPECT_EQ(ids.size(), 338025u);
    EXPECT_EQ(hexadecimal(hash_of_ids(ids)), fixture()["text_hash"]);
}

TEST(TokenizerPeer, ClassOfEveryUnicodeScalar) {
    std::uint64_t hash = fnv_start;
    for (char32_t c = 0; c < 0x110000; ++c)
        if (c < 0xD800 || c >= 0xE000) hash = fnv(hash, static_cast<std::uint8_t>(character_class(c)));
    EXPECT_EQ(hexadecimal(hash), fixture()["classes_hash"]) << "tables of Unicode " << unicode_version();
}

TEST(TokenizerPeer, TrainerLearnsTheSameMerges) {
    MANTISSA_SKIP_WITHOUT_SHARED_DATA();
    ThreadPool pool(2);
    const std::vector<std::filesystem::path> texts = {*shared_data() / "tinyshakespeare.txt"};
    const auto quiet = [](const TrainProgress&) {};
    const Tokenizer trained = train_tokenizer(count_pieces(texts, pool, quiet),
                                              fixture()["trained_vocabulary"].get<TokenId>(), quiet);
    std::uint64_t hash = fnv_start;
    for (const Merge& merge : trained.parts().merges) {
        const auto& tokens = trained.parts().tokens;
        for (const char c : spell_bytes(tokens[merge.left]) + " " + spell_bytes(tokens[merge.right]) + "\n")
            hash = fnv(hash, static_cast<std::uint8_t>(c));
    }
    EXPECT_EQ(hexadecimal(hash), fixture()["trained_merges_hash"]);
}

}  // namespace mantissa
