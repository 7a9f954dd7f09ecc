// The trainer against a trainer that counts everything again at each step, and what texts it refuses.
#include "mantissa/data/tokenizer_train.h"

#include <gtest/gtest.h>

#include <map>

#include "mantissa/base/random.h"
#include "mantissa/data/text_file.h"
#include "mantissa/data/tokenizer_alphabet.h"
#include "mantissa/data/tokenizer_split.h"
#include "tests/data/tokenizer_test_data.h"
#include "tests/support/error_of.h"
#include "tests/support/image_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {

namespace {

using testing::error_of;
using testing::write_file;
constexpr auto quiet = [](const TrainProgress&) {};

PieceCounts counts_of(std::string_view text) {
    PieceCounts counts;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = gpt2_pattern().find(text, begin).end;
        ++counts[std::string(text.substr(begin, end - begin))];
        begin = end;
    }
    return counts;
}

/// Words over few letters, so that frequencies tie and runs overlap.
std::string random_words(std::uint64_t seed, int words) {
    const RandomStream random{.seed = seed};
    std::uint64_t draw = 0;
    std::string text;
    for (int i = 0; i < words; ++i) {
        text += ' ';
        const std::uint32_t length = 1 + random.bits(draw++) % 9;
        for (std::uint32_t j = 0; j < length; ++j) text += static_cast<char>('a' + random.bits(draw++) % 3);
    }
    return text;
}

/// The merges learned by counting every pair of every word anew for each merge.
std::vector<std::pair<TokenId, TokenId>> plain_merges(const PieceCounts& counts, std::size_t merges) {
    std::array<TokenId, 256> ids{};
    TokenId next = 0;
    for (const std::uint8_t byte : bytes_in_token_order()) ids[byte] = next++;
    std::vector<std::pair<std::vector<TokenId>, std::uint64_t>> words;
    for (const auto& [piece, count] : counts) {
        words.push_back({{}, count});
        for (const char c : piece) words.back().first.push_back(ids[static_cast<unsigned char>(c)]);
    }
    std::vector<std::pair<TokenId, TokenId>> learned;
    while (learned.size() < merges) {
        std::map<std::pair<TokenId, TokenId>, std::uint64_t> pairs;
        for (const auto& [tokens, count] : words)
            for (std::size_t i = 0; i + 1 < tokens.size(); ++i) pairs[{tokens[i], tokens[i + 1]}] += count;
        std::pair<TokenId, TokenId> best;
        std::uint64_t most = 1;
        for (const auto& [pair, count] : pairs)
            if (count > most) best = pair, most = count;
        if (most == 1) break;
        for (auto& [tokens, count] : words) {
            std::vector<TokenId> merged;
            for (std::size_t i = 0; i < tokens.size(); ++i) {
                const bool here =
                    i + 1 < tokens.size() && tokens[i] == best.first && tokens[i + 1] == best.second;
                merged.push_back(here ? next : tokens[i]);
                i += here;
            }
            tokens = merged;
        }
        learned.push_back(best);
        ++next;
    }
    return learned;
}

std::vector<std::pair<TokenId, TokenId>> merges_of(const Tokenizer& tokenizer) {
    std::vector<std::pair<TokenId, TokenId>> merges;
    for (const Merge& merge : tokenizer.parts().merges) merges.emplace_back(merge.left, merge.right);
    return merges;
}

}  // namespace

TEST(TokenizerTrain, LearnsWhatCountingAnewLearns) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const PieceCounts counts = counts_of(random_words(seed, 600));
        const Tokenizer trained = train_tokenizer(counts, 257 + 100, quiet);
        ASSERT_EQ(merges_of(trained), plain_merges(counts, 100)) << seed;
    }
}

TEST(TokenizerTrain, IdsAreGpt2s) {
    const Tokenizer trained = train_tokenizer(counts_of("ab ab ab"), 258, quiet);
    EXPECT_EQ(trained.vocabulary(), 258);
    EXPECT_EQ(trained.token_bytes(0), "!");
    EXPECT_EQ(trained.token_bytes(220), " ");
    EXPECT_EQ(trained.token_bytes(256), "ab");
    EXPECT_EQ(trained.special("<|endoftext|>"), 257);
}

TEST(TokenizerTrain, PiecesOfFilesDoNotDependOnThreads) {
    const TemporaryDirectory directory;
    std::vector<std::filesystem::path> texts;
    std::string all;
    for (std::uint64_t i = 0; i < 3; ++i) {
        // Above two parts of a mebibyte, so that several threads have some.
        const std::string text = "x" + random_words(i, 400'000);
        all += text + "\n";
        texts.push_back(write_file(directory / std::to_string(i), text + "\n"));
    }
    ThreadPool one(1), three(3);
    const PieceCounts counts = count_pieces(texts, one, quiet);
    EXPECT_EQ(count_pieces(texts, three, quiet), counts);
    EXPECT_EQ(counts, counts_of(all));
}

TEST(TokenizerTrain, ProgressEndsAtTheWhole) {
    const TemporaryDirectory directory;
    const std::vector<std::filesystem::path> texts = {
        write_file(directory / "t", "x" + random_words(1, 400'000))};
    ThreadPool pool(1);
    std::uint64_t done = 0;
    count_pieces(texts, pool, [&](const TrainProgress& progress) {
        EXPECT_STREQ(progress.stage, "counting");
        EXPECT_GT(progress.done, done);
        EXPECT_EQ(progress.total, std::filesystem::file_size(texts[0]));
        done = progress.done;
    });
    EXPECT_EQ(done, std::filesystem::file_size(texts[0]));
}

TEST(TokenizerTrain, ALongRunIsCountedInParts) {
    const TemporaryDirectory directory;
    const std::vector<std::filesystem::path> texts = {write_file(directory / "t", std::string(1000, 'a'))};
    ThreadPool pool(1);
    const PieceCounts counts = count_pieces(texts, pool, quiet);
    EXPECT_EQ(counts, (PieceCounts{{std::string(256, 'a'), 3}, {std::string(232, 'a'), 1}}));
}

TEST(TokenizerTrain, RefusesWhatItCannotLearn) {
    EXPECT_EQ(error_of([] { train_tokenizer(counts_of("ab ab"), 256, quiet); }),
              "a vocabulary of 256 tokens is too small: 256 bytes and <|endoftext|> take 257");
    EXPECT_EQ(error_of([] { train_tokenizer(counts_of("ab ab cd"), 300, quiet); }),
              "the text gives 258 tokens, the vocabulary is to have 300: no further pair occurs twice. Give "
              "more text or a "
              "smaller vocabulary");
}

TEST(TokenizerTrain, RefusesWhatIsNoText) {
    const TemporaryDirectory directory;
    ThreadPool pool(1);
    const auto error = [&](const std::string& content) {
        const std::vector<std::filesystem::path> texts = {write_file(directory / "t", content)};
        return error_of([&] { count_pieces(texts, pool, quiet); });
    };
    const std::string name = (directory / "t").string();
    EXPECT_EQ(error(""), name + ": is empty; expected text");
    EXPECT_EQ(error(std::string("ab\0c", 4)), name + ": is binary (byte 2 is zero); expected text in UTF-8");
    EXPECT_EQ(error("\xE9t\xE9 \xE0 la"),
              name +
                  ": is binary or in another encoding (3 of its first 8 bytes are not "
                  "UTF-8); expected text in UTF-8, which iconv -f LATIN1 -t UTF-8 makes of Latin-1");
    EXPECT_EQ(error(std::string("\xFF\xFEt\0e\0", 6)),
              name + ": is UTF-16; expected text in UTF-8, which iconv -f UTF-16 -t UTF-8 makes of it");
    const std::string words = "a word of a long text, and a few more ";
    EXPECT_EQ(error(words + words + words + "\xFF" + words), "no error");
    EXPECT_NE(error(words + "\xFC" + words), "no error") << "as many as German in Latin-1 has";
}

}  // namespace mantissa
