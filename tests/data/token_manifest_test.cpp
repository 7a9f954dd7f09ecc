// Token shards and what they were made of: what has changed since is found, whatever it is, and said.
#include "mantissa/data/token_manifest.h"

#include <gtest/gtest.h>

#include <fstream>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/data/corpus.h"
#include "mantissa/data/token_file.h"
#include "mantissa/data/tokenizer_files.h"
#include "mantissa/data/tokenizer_train.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;

/// A text and a tokenizer, and shards of 1,000 tokens that were made of them.
class TokenManifests : public ::testing::Test {
  protected:
    TokenManifests() {
        write_text(std::string(2000, 'a') + " the end");
        write_tokenizer_of("the cat sat on the mat and the rat");
        shards_ = make_shards();
    }

    void write_text(const std::string& text) { std::ofstream(directory_ / "text.txt") << text; }

    void write_tokenizer_of(const std::string& text) {
        const std::vector<fs::path> sample = {directory_ / "sample.txt"};
        std::ofstream(sample[0]) << text;
        ThreadPool pool(1);
        const auto silent = [](const TrainProgress&) {};
        write_tokenizer(train_tokenizer(count_pieces(sample, pool, silent), 258, silent), directory_ / "tok");
    }

    std::vector<fs::path> make_shards() {
        const Tokenizer tokenizer = load_tokenizer(directory_ / "tok");
        const std::string text = read_file(directory_ / "text.txt");
        TokenShardWriter writer(directory_ / "all", {.tokens_per_shard = 1000});
        writer.append(tokenizer.encode(text));
        auto shards = writer.finish();
        write_token_manifest(
            directory_ / "all", shards,
            token_origin({text_origin(directory_ / "text.txt", text)}, directory_ / "tok", tokenizer));
        return shards;
    }

    std::string refusal(const std::vector<fs::path>& files, const Tokenizer* tokenizer = nullptr) {
        try {
            check_token_origin(files, tokenizer);
        } catch (const UserError& error) {
            return error.what();
        }
        return "accepted";
    }

    /// That all parts are in the refusal, in order.
    void expect_refused(const std::vector<fs::path>& files, const std::vector<std::string>& parts,
                        const Tokenizer* tokenizer = nullptr) {
        const std::string message = refusal(files, tokenizer);
        std::size_t at = 0;
        for (const std::string& part : parts) {
            at = message.find(part, at);
            ASSERT_NE(at, message.npos) << part << " in: " << message;
        }
    }

    TemporaryDirectory directory_;
    std::vector<fs::path> shards_;
};

TEST_F(TokenManifests, WhatHasNotChangedIsAccepted) {
    ASSERT_EQ(shards_.size(), 3u);
    EXPECT_EQ(refusal(shards_), "accepted");
    EXPECT_EQ(refusal({shards_[1]}), "accepted");
    const Tokenizer tokenizer = load_tokenizer(directory_ / "tok");
    EXPECT_EQ(refusal(shards_, &tokenizer), "accepted");
    EXPECT_NO_THROW(check_tokenizer_of(shards_[0], tokenizer));
}

TEST_F(TokenManifests, ATextThatChangedIsFoundBySizeAndByChecksum) {
    write_text(std::string(2001, 'a') + " the end");
    expect_refused(shards_,
                   {(directory_ / "text.txt").string(), "has changed since", "all.tokens.json",
                    "then 2008 bytes", "now 2009", "`encode_text`", "`tokenizer`", "`out`", "or remove"});
    write_text(std::string(2000, 'b') + " the end");
    expect_refused(shards_, {"has changed since", "then 2008 bytes", "now 2008"});
    make_shards();
    EXPECT_EQ(refusal(shards_), "accepted");
}

TEST_F(TokenManifests, TrainingOnThemIsRefused) {
    write_text(std::string(2000, 'b') + " the end");
    ThreadPool pool(1);
    const CorpusOptions options{.texts = {}, .tokens = shards_, .tokenizer = {}, .model_vocabulary = 300};
    EXPECT_THROW(open_corpus(options, pool), UserError);
    make_shards();
    EXPECT_GT(open_corpus(options, pool).stream.size(), 2000u);
}

TEST_F(TokenManifests, ATextThatIsGoneHasNothingToSay) {
    fs::remove(directory_ / "text.txt");
    fs::remove_all(directory_ / "tok");
    EXPECT_EQ(refusal(shards_), "accepted");
}

TEST_F(TokenManifests, MovedTogetherWithTheTextTheyStillKnowIt) {
    TemporaryDirectory elsewhere;
    fs::copy(directory_.path(), elsewhere.path(), fs::copy_options::recursive);
    fs::remove_all(directory_.path());
    std::ofstream(elsewhere / "text.txt", std::ios::app) << "more";
    expect_refused({elsewhere / "all_000000.bin"}, {(elsewhere / "text.txt").string(), "has changed since"});
}

TEST_F(TokenManifests, AnotherTokenizerIsFoundWhetherGivenOrNot) {
    const Tokenizer before = load_tokenizer(directory_ / "tok");
    write_tokenizer_of("the big pig did dig a fig");
    const Tokenizer after = load_tokenizer(directory_ / "tok");
    expect_refused(shards_, {"tokenizer.json", "has changed since", "then 258 tokens", "now 258"});
    expect_refused(shards_, {"tokenizer.json", "is not the tokenizer with which", "tok,", "use that one"},
                   &after);
    EXPECT_EQ(refusal(shards_, &before), "accepted");
    EXPECT_THROW(check_tokenizer_of(shards_[0], after), UserError);
}

TEST_F(TokenManifests, AShardThatIsNotAsWrittenIsNamed) {
    std::fstream(shards_[1], std::ios::in | std::ios::out).seekp(1500).put('x');
    expect_refused(shards_, {shards_[1].string(), "was damaged or written over"});
    EXPECT_EQ(refusal({shards_[0], shards_[2]}), "accepted");
}

TEST_F(TokenManifests, NoBitOfTheRecordChangesUnseen) {
    const fs::path record = directory_ / "all.tokens.json";
    const std::string text = read_file(record);
    for (std::size_t at = 0; at < text.size(); ++at) {
        std::string damaged = text;
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
        std::ofstream(record, std::ios::binary) << damaged;
        expect_refused({shards_[0]}, {record.string(), "differs from the checksum in its first line"});
    }
}

TEST_F(TokenManifests, ShardsOfAnEarlierLongerTextGo) {
    std::ofstream(directory_ / "beside_000007.bin") << "somebody else's";
    write_text("the end");
    EXPECT_EQ(make_shards().size(), 1u);
    EXPECT_TRUE(fs::exists(shards_[0]));
    EXPECT_FALSE(fs::exists(shards_[1]));
    EXPECT_FALSE(fs::exists(shards_[2]));
    EXPECT_TRUE(fs::exists(directory_ / "beside_000007.bin"));
}

TEST_F(TokenManifests, WhatLiesInAnEarlierShardsPlaceStaysAndIsNotTaken) {
    std::ofstream(shards_[2]) << "somebody else's";
    write_text("the end");
    make_shards();
    EXPECT_FALSE(fs::exists(shards_[1]));
    EXPECT_EQ(read_file(shards_[2]), "somebody else's");
    expect_refused({shards_[0], shards_[2]},
                   {shards_[2].string(), "names 1 file, and not this one", "leave it out"});
}

TEST_F(TokenManifests, AnotherStemTouchesNothing) {
    const Tokenizer tokenizer = load_tokenizer(directory_ / "tok");
    const auto single = directory_ / "all_000009.bin";
    write_token_shard(single, std::vector<std::int32_t>{1, 2, 3});
    write_token_manifest(directory_ / "all_000009", {single},
                         token_origin({text_origin("", "abc")}, directory_ / "tok", tokenizer));
    EXPECT_EQ(refusal({shards_[0], shards_[1], shards_[2], single}), "accepted");
}

TEST_F(TokenManifests, FilesWithoutARecordAreTakenAsTheyAre) {
    fs::remove(directory_ / "all.tokens.json");
    write_text("changed");
    EXPECT_EQ(refusal(shards_), "accepted");
}

}  // namespace
}  // namespace mantissa
