// The inputs of a model with packed documents, and where they are found: in streams of tokens and in texts.
#include "mantissa/data/packed_documents.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "mantissa/data/corpus.h"
#include "mantissa/data/encode_text.h"
#include "mantissa/data/token_file.h"
#include "mantissa/data/tokenizer_files.h"
#include "mantissa/data/tokenizer_train.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using Tokens = std::vector<std::int32_t>;

struct PackedBatch {
    Tokens tokens, targets, documents, positions;
    std::vector<float> counted;
};

PackedBatch packed_batch(const PackedDocuments& source, std::uint64_t step, std::int64_t micro_batch,
                         std::size_t B, std::size_t T) {
    PackedBatch read{Tokens(B * T), Tokens(B * T), Tokens(B * T), Tokens(B * T), std::vector<float>(B)};
    const std::vector<std::span<std::byte>> inputs = {
        std::as_writable_bytes(std::span(read.tokens)), std::as_writable_bytes(std::span(read.targets)),
        std::as_writable_bytes(std::span(read.documents)), std::as_writable_bytes(std::span(read.positions)),
        std::as_writable_bytes(std::span(read.counted))};
    source.fill(step, micro_batch, inputs);
    return read;
}

TEST(PackedDocuments, TellDocumentsApart) {
    const TokenStream stream(Tokens{5, 6, 9, 7, 9, 9, 8, 5, 6, 7, 8, 9, 5}, "t.bin");
    const DocumentEnds ends(stream, {{9}});
    EXPECT_EQ(ends.documents(), 4u);
    EXPECT_EQ(ends.among({0, 13}), 4u);
    EXPECT_EQ(ends.among({2, 5}), 2u);
    EXPECT_EQ(ends.among({3, 4}), 0u);
    const PackedDocuments source(stream, ends, stream.all(), 6, {.batch = 1, .accumulate = 2});
    const PackedBatch first = packed_batch(source, 0, 0, 1, 6), second = packed_batch(source, 0, 1, 1, 6);
    EXPECT_EQ(first.tokens, (Tokens{5, 6, 9, 7, 9, 9}));
    EXPECT_EQ(first.targets, (Tokens{6, 9, -1, 9, -1, -1}));
    EXPECT_EQ(first.documents, (Tokens{0, 0, 0, 1, 1, 2}));
    EXPECT_EQ(first.positions, (Tokens{0, 1, 2, 0, 1, 0}));
    EXPECT_EQ(second.tokens, (Tokens{8, 5, 6, 7, 8, 9}));
    EXPECT_EQ(second.targets, (Tokens{5, 6, 7, 8, 9, -1}));
    EXPECT_EQ(second.positions, (Tokens{0, 1, 2, 3, 4, 5}));
    // 3 + 5 targets of two micro-batches.
    EXPECT_EQ(source.counted(0), 8u);
    EXPECT_EQ(first.counted, (std::vector<float>{4}));
    EXPECT_EQ(second.counted, first.counted);
    EXPECT_NE(source.description().find("documents packed, ending at token 9"), std::string::npos);
}

TEST(PackedDocuments, AStepOfEndsAloneCountsOne) {
    const TokenStream stream(Tokens{3, 3, 3, 3, 3});
    const DocumentEnds ends(stream, {{3}});
    const PackedDocuments source(stream, ends, stream.all(), 2, {.batch = 2});
    EXPECT_EQ(source.counted(0), 0u);
    EXPECT_EQ(packed_batch(source, 0, 0, 2, 2).counted, (std::vector<float>{1, 1}));
    EXPECT_EQ(packed_batch(source, 0, 0, 2, 2).positions, (Tokens{0, 0, 0, 0}));
}

TEST(PackedDocuments, AreRefusedWhereNothingEndsThem) {
    const TokenStream stream(Tokens{1, 2, 3}, "t.bin");
    EXPECT_EQ(
        testing::error_of([&] { DocumentEnds(stream, {{9}}); }),
        "t.bin: documents end at token 9, which is none of its 3 tokens; was it tokenized without marks "
        "between documents, or with another tokenizer?");
}

/// A tokenizer, and texts to open.
class TextOfDocuments : public ::testing::Test {
  protected:
    TextOfDocuments() {
        write("a.txt", "one two three<|endoftext|>four<|endoftext|>\n");
        write("b.txt", "five <s> six\n");
        const auto silent = [](const TrainProgress&) {};
        const std::vector<std::filesystem::path> learnt = {directory_ / "a.txt"};
        write_tokenizer(train_tokenizer(count_pieces(learnt, pool_, silent), 257, silent),
                        directory_ / "tok");
    }
    void write(const char* name, const char* text) { std::ofstream(directory_ / name) << text; }
    CorpusOptions options(std::vector<std::filesystem::path> texts) const {
        return {.texts = std::move(texts),
                .tokenizer = directory_ / "tok",
                .model_vocabulary = 512,
                .documents = true};
    }

    TemporaryDirectory directory_;
    ThreadPool pool_{2};
};

TEST_F(TextOfDocuments, EndsEachFileAndWhereItSaysSo) {
    const Corpus corpus = open_corpus(options({directory_ / "a.txt", directory_ / "b.txt"}), pool_);
    ASSERT_TRUE(corpus.ends);
    EXPECT_EQ(corpus.ends->documents(), 3u);
    EXPECT_NE(corpus.description.find("in 3 documents"), std::string::npos);
    Tokens tokens(corpus.stream.size());
    corpus.stream.copy(0, tokens);
    EXPECT_EQ(corpus.tokenizer->decode(tokens),
              "one two three<|endoftext|>four<|endoftext|>five <s> six\n<|endoftext|>");
    EXPECT_EQ(tokens.back(), corpus.tokenizer->ends()[0]);
}

TEST_F(TextOfDocuments, LeavesOutEmptyOnes) {
    const Tokenizer tokenizer = load_tokenizer(directory_ / "tok");
    const auto documents = [&](std::string_view text) {
        Tokens tokens;
        encode_documents(tokenizer, text, pool_, [&](std::span<const TokenId> ids, std::size_t) {
            tokens.insert(tokens.end(), ids.begin(), ids.end());
        });
        return tokenizer.decode(tokens);
    };
    EXPECT_EQ(documents("a"), "a<|endoftext|>");
    EXPECT_EQ(documents("<|endoftext|>\na<|endoftext|> \n<|endoftext|>\n"), "\na<|endoftext|>");
    EXPECT_EQ(documents("a <|endoftext|> b "), "a <|endoftext|> b <|endoftext|>");
    EXPECT_EQ(documents(" \n"), "");
}

TEST_F(TextOfDocuments, EndAtEachOfSeveralTokens) {
    // By id, "<|endoftext|>" and "!": two ends, as LLaMA 3 has them.
    std::ofstream(directory_ / "tok/config.json") << R"({"eos_token_id": [256, 0]})";
    const Corpus corpus = open_corpus(options({directory_ / "a.txt"}), pool_);
    EXPECT_EQ(corpus.ends->tokens_text(), "256 or 0");
    write("c.txt", "one! two<|endoftext|>three!");
    EXPECT_EQ(open_corpus(options({directory_ / "c.txt"}), pool_).ends->documents(), 3u);
}

TEST_F(TextOfDocuments, AreThoseOfTokenFilesToo) {
    const Tokens tokens = {1, 2, 256, 3, 256, 4};
    write_token_shard(directory_ / "t.bin", tokens);
    CorpusOptions given = options({});
    given.tokens = {directory_ / "t.bin"};
    EXPECT_EQ(open_corpus(given, pool_).ends->documents(), 2u);
    given.tokenizer.clear();
    EXPECT_EQ(testing::error_of([&] { open_corpus(given, pool_); }),
              "packed documents end at the tokenizer's end-of-text token, and there is no tokenizer; give it "
              "as `tokenizer` DIR");
    write_token_shard(directory_ / "u.bin", Tokens{1, 2, 3});
    given = options({});
    given.tokens = {directory_ / "u.bin"};
    EXPECT_NE(testing::error_of([&] {
                  open_corpus(given, pool_);
              }).find("u.bin: documents end at token 256, which is none of its 3 tokens"),
              std::string::npos);
}

TEST_F(TextOfDocuments, OfBytesHaveNoEnd) {
    CorpusOptions given = options({directory_ / "a.txt"});
    given.tokenizer.clear();
    EXPECT_NE(testing::error_of([&] { open_corpus(given, pool_); }).find("give it as `tokenizer` DIR"),
              std::string::npos);
    given.untokenized = CorpusOptions::Untokenized::train;
    EXPECT_EQ(open_corpus(given, pool_).ends->documents(), 2u);
}

}  // namespace
}  // namespace mantissa
