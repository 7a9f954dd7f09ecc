// Texts become the ids that Hugging Face's tokenizers give for the same tokenizer.json, in every way that the
// library has: the fixture is made by bench/peers/text_ids_fixture.py. The ways of the commands are in
// tests/cli/text_ids_test.cpp.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "mantissa/data/corpus.h"
#include "mantissa/data/encode_text.h"
#include "mantissa/data/text_files.h"
#include "mantissa/data/text_reading.h"
#include "mantissa/data/token_file.h"
#include "mantissa/data/token_manifest.h"
#include "mantissa/data/tokenizer_files.h"
#include "tests/data/tokenizer_test_data.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/text_ids_fixture.h"

namespace mantissa {
namespace {

using testing::TextIds;
using testing::TokenizerOfFixture;

class TextIdsOf : public ::testing::Test {
  protected:
    std::filesystem::path write(const std::string& name, std::string_view text) const {
        std::ofstream(directory_ / name) << text;
        return directory_ / name;
    }
    /// The folder of one of the fixture's tokenizers.
    std::filesystem::path folder_of(const TokenizerOfFixture& kind) const {
        std::filesystem::create_directories(directory_ / kind.name);
        write(kind.name + "/tokenizer.json", kind.json);
        write(kind.name + "/tokenizer_config.json", kind.config);
        return directory_ / kind.name;
    }
    std::vector<TextFile> files_of(const std::vector<std::string>& texts) const {
        std::vector<TextFile> files;
        for (std::size_t i = 0; i < texts.size(); ++i)
            files.emplace_back(write("text" + std::to_string(i), texts[i]));
        return files;
    }
    Ids ids_of_texts(const Tokenizer& tokenizer, const std::vector<std::string>& texts, TextsAre are,
                     const TextReading& reading) {
        Ids all;
        encode_texts(tokenizer, files_of(texts), are, reading, pool_,
                     [&](std::span<const TokenId> ids, std::size_t) {
                         all.insert(all.end(), ids.begin(), ids.end());
                     });
        return all;
    }

    TemporaryDirectory directory_;
    ThreadPool pool_{2};
};

Ids tokens_of(const TokenStream& stream) {
    Ids ids(stream.size());
    stream.copy(0, ids);
    return ids;
}

TEST_F(TextIdsOf, EveryKindOfTokenizerAreTheLibrarys) {
    const TextIds fixture;
    for (const TokenizerOfFixture& kind : fixture.tokenizers) {
        SCOPED_TRACE(kind.name);
        const Tokenizer tokenizer = load_tokenizer(folder_of(kind));
        EXPECT_EQ(tokenizer.ends()[0], kind.end);
        for (const auto& [specials, expected] :
             {std::pair{SpecialsInText::as_tokens, &kind.tokens}, {SpecialsInText::as_text, &kind.text}}) {
            const TextReading reading{.specials = specials};
            for (std::size_t i = 0; i < fixture.texts.size(); ++i)
                EXPECT_EQ(tokenizer.encode_whole(fixture.texts[i], reading), (*expected)[i])
                    << fixture.texts[i];
            // One file, all files, and a corpus.
            Ids all;
            for (const Ids& ids : *expected) all.insert(all.end(), ids.begin(), ids.end());
            EXPECT_EQ(ids_of_texts(tokenizer, fixture.texts, TextsAre::begun, reading), all);
            for (std::size_t i = 0; i < fixture.texts.size(); ++i) {
                const Corpus corpus = open_corpus({.texts = {write("one.txt", fixture.texts[i])},
                                                   .tokenizer = directory_ / kind.name,
                                                   .model_vocabulary = 1000,
                                                   .reading = reading},
                                                  pool_);
                EXPECT_EQ(tokens_of(corpus.stream), (*expected)[i]) << fixture.texts[i];
                EXPECT_EQ(corpus.reading, reading);
            }
        }
    }
}

/// A document is what the library makes of its text alone, and its end.
TEST_F(TextIdsOf, DocumentsBeginAsTextsDo) {
    const TextIds fixture;
    for (const TokenizerOfFixture& kind : fixture.tokenizers) {
        SCOPED_TRACE(kind.name);
        const Tokenizer tokenizer = load_tokenizer(folder_of(kind));
        const std::string end(tokenizer.token_bytes(kind.end));
        for (std::size_t i : {0, 4, 6}) {  // texts without any end
            Ids expected = kind.tokens[i];
            expected.push_back(kind.end);
            Ids twice = expected;
            twice.insert(twice.end(), expected.begin(), expected.end());
            const std::string& text = fixture.texts[i];
            EXPECT_EQ(ids_of_texts(tokenizer, {text}, TextsAre::documents, {}), expected) << text;
            EXPECT_EQ(ids_of_texts(tokenizer, {text, text}, TextsAre::documents, {}), twice) << text;
            EXPECT_EQ(ids_of_texts(tokenizer, {text + end + text}, TextsAre::documents, {}), twice) << text;
            const Corpus corpus = open_corpus({.texts = {write("one.txt", text + end + text)},
                                               .tokenizer = directory_ / kind.name,
                                               .model_vocabulary = 1000,
                                               .documents = true},
                                              pool_);
            EXPECT_EQ(tokens_of(corpus.stream), twice);
            EXPECT_EQ(corpus.ends->documents(), 2u);
            EXPECT_EQ(corpus.ends->positions()[0], expected.size() - 1);
        }
    }
}

/// As a template puts it there.
TEST_F(TextIdsOf, TokensBehindATextEndWhatIsTrainedOn) {
    const TextIds fixture;
    const TokenizerOfFixture& kind = fixture.named("byte fallback");
    TokenizerParts parts = load_tokenizer(folder_of(kind)).parts();
    parts.last_tokens = {kind.end};
    const Tokenizer tokenizer(std::move(parts));
    Ids expected = kind.tokens[0];
    EXPECT_EQ(tokenizer.encode_whole(fixture.texts[0]), expected);  // a prompt goes on
    expected.push_back(kind.end);
    EXPECT_EQ(ids_of_texts(tokenizer, {fixture.texts[0]}, joined_or_begun(tokenizer, {}), {}), expected);
    EXPECT_EQ(ids_of_texts(tokenizer, {fixture.texts[0]}, TextsAre::documents, {}), expected);
}

TEST_F(TextIdsOf, OldRunsAreReadAsTheyWere) {
    const TextIds fixture;
    const TokenizerOfFixture& kind = fixture.named("byte fallback");
    const Tokenizer tokenizer = load_tokenizer(folder_of(kind));
    ASSERT_EQ(joined_or_begun(tokenizer, earlier_reading), TextsAre::joined);
    EXPECT_EQ(ids_of_texts(tokenizer, {"a</s>", "b"}, TextsAre::joined, earlier_reading),
              tokenizer.encode("a</s>\nb", {.specials = SpecialsInText::as_text}));
    // The end of a document was a token even then, and what followed on it began no text.
    const std::string text = "a<s></s>b";
    Ids expected = tokenizer.encode(text, {.specials = SpecialsInText::end_of_text_as_token});
    expected.push_back(kind.end);
    EXPECT_EQ(ids_of_texts(tokenizer, {text}, TextsAre::documents, earlier_reading), expected);
    EXPECT_NE(ids_of_texts(tokenizer, {text}, TextsAre::documents, {}), expected);
}

/// A long text is encoded in parts; none begins within a special token, or next behind one.
TEST_F(TextIdsOf, PartsOfALongTextCutNoSpecialToken) {
    const TextIds fixture;
    TokenizerParts parts = load_tokenizer(folder_of(fixture.named("metaspace chat"))).parts();
    parts.specials.push_back({"<a b>", static_cast<TokenId>(parts.tokens.size())});
    parts.tokens.emplace_back("<a b>");
    const Tokenizer tokenizer(std::move(parts));
    constexpr std::size_t part = std::size_t{1} << 20;
    for (const std::string token : {"<a b>", "<|im_end|>"})
        for (std::size_t before = 0; before <= token.size(); ++before) {
            std::string text(part - before, 'x');
            text += token + " the cat" + token + "sat";
            Ids in_parts;
            encode_text(tokenizer, text, pool_, [&](std::span<const TokenId> ids, std::size_t) {
                in_parts.insert(in_parts.end(), ids.begin(), ids.end());
            });
            EXPECT_EQ(in_parts, tokenizer.encode(text)) << token << " " << before;
        }
}

/// Where one token both begins and ends, it ends no document of which it is the first.
TEST_F(TextIdsOf, ATokenThatBeginsAndEndsTellsDocumentsApart) {
    const TokenStream stream(Ids{2, 5, 6, 2, 2, 7, 2, 2, 8, 9, 2});
    const DocumentEnds ends(stream, {{2}, 2});
    EXPECT_EQ(ends.positions(), (std::vector<std::uint64_t>{3, 6, 10}));
    EXPECT_EQ(DocumentEnds(stream, {{2}}).documents(), 6u);
    Ids targets(6, 1), documents(6), positions(6);
    tell_documents_apart({targets, documents, positions}, ends.within({2, 8}), 2);  // 6 2 | 2 7 2 | 2
    EXPECT_EQ(documents, (Ids{0, 0, 1, 1, 1, 2}));
    EXPECT_EQ(positions, (Ids{0, 1, 0, 1, 2, 0}));
    EXPECT_EQ(targets, (Ids{1, -1, 1, 1, -1, 1}));
}

TEST_F(TextIdsOf, ShardsSayHowTheyWereMade) {
    const TextIds fixture;
    const TokenizerOfFixture& kind = fixture.named("byte fallback");
    const std::filesystem::path folder = folder_of(kind);
    const Tokenizer tokenizer = load_tokenizer(folder);
    const auto shard = [&](const char* stem, const Ids& ids) {
        const std::filesystem::path file = directory_ / (std::string(stem) + ".bin");
        write_token_shard(file, ids);
        return file;
    };
    const auto reading_of = [&](const std::vector<std::filesystem::path>& files) {
        return open_corpus({.tokens = files, .tokenizer = folder, .model_vocabulary = 1000}, pool_).reading;
    };
    const std::filesystem::path a = shard("a", kind.tokens[0]), b = shard("b", kind.text[1]);
    // Without a record: by what the tokens begin with.
    EXPECT_EQ(reading_of({a}), TextReading{});
    EXPECT_EQ(reading_of({shard("c", {70, 71, 72})}), TextReading{.begins = false});
    const TextReading as_text{.specials = SpecialsInText::as_text};
    write_token_manifest(directory_ / "a", {a}, token_origin({}, folder, tokenizer));
    write_token_manifest(directory_ / "b", {b}, token_origin({}, folder, tokenizer, as_text));
    EXPECT_EQ(reading_of({a}), TextReading{});
    EXPECT_EQ(reading_of({b}), as_text);
    EXPECT_NE(
        testing::error_of([&] {
            reading_of({a, b});
        })
            .find("b.tokens.json: its texts were made tokens in another way (special tokens in texts read "
                  "as text, <s> before each) than those of"),
        std::string::npos);
}

TEST(TextReadings, AreKeptAsTheyAreWritten) {
    for (const SpecialsInText specials : {SpecialsInText::as_tokens, SpecialsInText::as_text})
        for (const bool begins : {false, true}) {
            const TextReading reading{.specials = specials, .begins = begins};
            EXPECT_EQ(reading_in({{"reading", json_of(reading)}}, "state.json"), reading);
        }
    EXPECT_EQ(reading_in(nlohmann::json::object(), "state.json"), earlier_reading);
    EXPECT_EQ(testing::error_of([] {
                  reading_in({{"reading", {{"special_tokens", "words"}, {"first_tokens", true}}}}, "s.json");
              }),
              "s.json: reading.special_tokens: special tokens are read as tokens or as text, not as 'words'");
}

}  // namespace
}  // namespace mantissa
