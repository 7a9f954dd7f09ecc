// Our tokenizer against tiktoken and Hugging Face's: the fixture is made by bench/peers/tokenizer_fixture.py.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mantissa/base/file.h"
#include "mantissa/data/text_file.h"
#include "mantissa/data/tokenizer_alphabet.h"
#include "mantissa/data/tokenizer_train.h"
#include "mantissa/data/unicode.h"
#include "tests/data/awkward_strings.h"
#include "tests/data/tokenizer_test_data.h"

namespace mantissa {

namespace {

const nlohmann::json& peer_fixture() {
    static const auto json = nlohmann::json::parse(
        read_file(std::string(MANTISSA_SOURCE_DIR) + "/tests/data/tokenizer_fixture.json"));
    return json;
}

std::string string_number(std::uint64_t number) { return awkward_string(peer_fixture(), number); }

}  // namespace

TEST(TokenizerPeerSlow, HelloWorld) {
    MANTISSA_SKIP_WITHOUT_SHARED_DATA();
    EXPECT_EQ(load_gpt2().encode("Hello world"), (std::vector<TokenId>{15496, 995}));
}

TEST(TokenizerPeerSlow, TenThousandRandomAndAwkwardStrings) {
    MANTISSA_SKIP_WITHOUT_SHARED_DATA();
    const Tokenizer tokenizer = load_gpt2();
    Encoder encoder(tokenizer);
    const auto hashes = peer_fixture()["hashes"].get<std::string>();
    ASSERT_EQ(hashes.size(), 80000u);
    int wrong = 0;
    for (std::size_t i = 0; i < 10000; ++i) {
        std::vector<TokenId> ids;
        const std::string text = string_number(i);
        encoder.encode(text, ids, {.specials = SpecialsInText::as_text});
        ASSERT_EQ(tokenizer.decode(ids), text) << "string " << i;
        if (hexadecimal(hash_of_ids(ids)).substr(0, 8) == hashes.substr(8 * i, 8)) continue;
        ADD_FAILURE() << "string " << i << ": " << text;
        if (++wrong == 10) FAIL() << "and more";
    }
    // The comparison bites: one token changed changes the hash.
    auto ids = tokenizer.encode(string_number(0), {.specials = SpecialsInText::as_text});
    ids[0] ^= 1;
    EXPECT_NE(hexadecimal(hash_of_ids(ids)).substr(0, 8), hashes.substr(0, 8));
}

TEST(TokenizerPeerSlow, WholeText) {
    MANTISSA_SKIP_WITHOUT_SHARED_DATA();
    const TextFile text(*shared_data() / "tinyshakespeare.txt");
    const auto ids = load_gpt2().encode(text.text());
    EXPECT_EQ(ids.size(), 338025u);
    EXPECT_EQ(hexadecimal(hash_of_ids(ids)), peer_fixture()["text_hash"]);
}

TEST(TokenizerPeer, ClassOfEveryUnicodeScalar) {
    std::uint64_t hash = fnv_start;
    for (char32_t c = 0; c < 0x110000; ++c)
        if (c < 0xD800 || c >= 0xE000) hash = fnv(hash, static_cast<std::uint8_t>(character_class(c)));
    EXPECT_EQ(hexadecimal(hash), peer_fixture()["classes_hash"]);
}

TEST(TokenizerPeerSlow, TrainerLearnsTheSameMerges) {
    MANTISSA_SKIP_WITHOUT_SHARED_DATA();
    ThreadPool pool(2);
    const std::vector<std::filesystem::path> texts = {*shared_data() / "tinyshakespeare.txt"};
    const auto quiet = [](const TrainProgress&) {};
    const Tokenizer trained = train_tokenizer(count_pieces(texts, pool, quiet),
                                              peer_fixture()["trained_vocabulary"].get<TokenId>(), quiet);
    std::uint64_t hash = fnv_start;
    for (const Merge& merge : trained.parts().merges) {
        const auto& tokens = trained.parts().tokens;
        for (const char c : spell_bytes(tokens[merge.left]) + " " + spell_bytes(tokens[merge.right]) + "\n")
            hash = fnv(hash, static_cast<std::uint8_t>(c));
    }
    EXPECT_EQ(hexadecimal(hash), peer_fixture()["trained_merges_hash"]);
}

}  // namespace mantissa
