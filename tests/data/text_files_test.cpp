// Text files as they are named, found in folders, joined and split.
#include "mantissa/data/text_files.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "mantissa/data/corpus.h"
#include "mantissa/data/tokenizer_files.h"
#include "mantissa/data/tokenizer_train.h"
#include "tests/support/error_of.h"
#include "tests/support/image_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;
using testing::write_file;
using Tokens = std::vector<std::int32_t>;

std::string refusal_of_texts(const std::vector<fs::path>& given) {
    return testing::error_of([&] { find_texts(given); });
}

TEST(TextFiles, AnEmptyOneIsNamedAndTheRestGoesOn) {
    const TemporaryDirectory directory;
    const fs::path a = write_file(directory / "a.txt", "text"), empty = write_file(directory / "b.txt", "");
    const TextFiles found = find_texts({empty, a});
    EXPECT_EQ(found.taken, (std::vector<fs::path>{a}));
    EXPECT_EQ(found.account, "left out: " + empty.string() + " (empty)");
    EXPECT_EQ(find_texts({a}).account, "");
    EXPECT_EQ(refusal_of_texts({empty}), empty.string() + ": is empty; expected text");
    EXPECT_EQ(refusal_of_texts({empty, empty}), empty.string() + ": no file of text is there, only " +
                                                    empty.string() + " (empty), " + empty.string() +
                                                    " (empty); expected one that is not empty");
    // Nothing is said of a file that cannot be opened: whoever opens it does.
    EXPECT_EQ(find_texts({directory / "none"}).taken.size(), 1u);
}

TEST(TextFiles, OneThatIsGivenTwiceIsReadTwiceAndNamed) {
    const TemporaryDirectory directory;
    const fs::path a = write_file(directory / "a.txt", "text"), b = write_file(directory / "b.txt", "text");
    fs::create_symlink(a, directory.path().parent_path() / (directory.path().filename().string() + ".link"));
    const fs::path link = directory.path().string() + ".link";
    EXPECT_EQ(find_texts({a, b, link}).taken, (std::vector<fs::path>{a, b, link}));
    EXPECT_EQ(find_texts({a, b, link}).account, "read more than once, as given: " + link.string());
    EXPECT_EQ(find_texts({directory.path(), a, a}).account,
              "taken: a.txt, b.txt; read more than once, as given: " + a.string());
    EXPECT_EQ(find_texts({a, b}).account, "");
    fs::remove(link);
}

TEST(TextFiles, OfAFolderAreThoseThatHoldText) {
    const TemporaryDirectory directory;
    for (const char* name : {"c.txt", "a.md", "sub/b", ".git/HEAD", ".hidden"})
        write_file(directory / name, "x");
    write_file(directory / "empty.txt", "");
    write_file(directory / "p.png", std::string("\x89PNG\0", 5));
    write_file(directory / "u.txt", std::string("\xFF\xFEh\0i\0", 6));
    write_file(directory / "l.txt", "caf\xE9 cr\xE8me\r\n");
    write_file(directory / "x.bin", "\x80\x81\x82\x01\x02");
    fs::create_directory_symlink(directory.path(), directory / "sub" / "up");
    const TextFiles found = find_texts({directory.path()});
    EXPECT_EQ(found.taken,
              (std::vector<fs::path>{directory / "a.md", directory / "c.txt", directory / "sub" / "b"}));
    EXPECT_EQ(
        found.account,
        "taken: a.md, c.txt, sub/b; left out: empty.txt (empty), l.txt (another encoding than UTF-8, such "
        "as Latin-1), p.png (no text), u.txt (UTF-16), x.bin (no text), sub/up (a link to nothing or to a "
        "folder that was read already), 2 hidden in " +
            directory.path().string());
    EXPECT_EQ(refusal_of_texts({directory / ".git"}), "no error");
    fs::create_directory(directory / "none");
    EXPECT_EQ(refusal_of_texts({directory / "none"}),
              (directory / "none").string() + ": no file of text is there; expected one that is not empty");
}

TEST(TextFiles, AreCalledByWhatIsCommonToThem) {
    const auto named = [](const std::string& folder, int count) {
        std::vector<fs::path> files;
        for (int i = 0; i < count; ++i) files.push_back(fs::path(folder) / std::to_string(i));
        return files;
    };
    const auto with = [](std::vector<fs::path> files, const std::vector<fs::path>& more) {
        files.insert(files.end(), more.begin(), more.end());
        return name_of(files);
    };
    EXPECT_EQ(name_of({"a/b.txt"}), "a/b.txt");
    EXPECT_EQ(name_of({"a/b.txt", "c.txt"}), "a/b.txt, c.txt");
    EXPECT_EQ(name_of(named("notes", 13)), "notes (13 files)");
    EXPECT_EQ(name_of(named("", 4)), ". (4 files)");
    EXPECT_EQ(with(named("Meine Notizen", 40), {"chats.jsonl"}), "41 files of Meine Notizen and chats.jsonl");
    EXPECT_EQ(with(named("a/b", 3), named("a", 3)), "a (6 files)");
    EXPECT_EQ(with(named("a", 3), {"b/x", "c/y"}), "5 files of a, b/x and c/y");
    EXPECT_EQ(name_of({"d/a/1", "d/b/1", "d/c/1", "d/e/1"}), "d (4 files)");
    EXPECT_EQ(name_of({"a/1", "b/1", "c/1", "e/1"}), "4 files of a/1, b/1 and 2 other places");
}

/// Every file begins with another letter, so that a token says which file it is of.
class SplitOfTexts : public ::testing::Test {
  protected:
    Corpus open(const std::vector<std::string>& texts, CorpusOptions options = {}) {
        for (std::size_t i = 0; i < texts.size(); ++i)
            options.texts.push_back(write_file(directory_ / (std::to_string(i) + ".txt"), texts[i]));
        options.model_vocabulary = 512;
        return open_corpus(options, pool_);
    }
    static Tokens tokens_of(const TokenStream& stream, TokenRange range) {
        Tokens tokens(range.size());
        stream.copy(range.begin, tokens);
        return tokens;
    }
    static std::string text_of(const TokenStream& stream, TokenRange range) {
        const Tokens tokens = tokens_of(stream, range);
        return {tokens.begin(), tokens.end()};
    }
    fs::path write_tokenizer_of(const std::string& text) {
        const auto silent = [](const TrainProgress&) {};
        const std::vector<fs::path> learnt = {write_file(directory_ / "learnt", text)};
        write_tokenizer(train_tokenizer(count_pieces(learnt, pool_, silent), 258, silent),
                        directory_ / "tok");
        return directory_ / "tok";
    }

    TemporaryDirectory directory_;
    ThreadPool pool_{2};
};

TEST_F(SplitOfTexts, TakesTheTailOfEachFile) {
    Corpus corpus =
        open({std::string(18, 'a') + "AA", std::string(9, 'b') + "B", std::string(27, 'c') + "CCC"});
    const TokenSplit split = split_each_file(corpus);
    // The line break between two is the last byte of the first.
    EXPECT_EQ(text_of(corpus.stream, split.validation), "A\n\nCCC");
    EXPECT_EQ(text_of(corpus.stream, split.train),
              std::string(18, 'a') + "A" + std::string(9, 'b') + "B" + std::string(27, 'c'));
    // A run over the seams, and within a piece.
    EXPECT_EQ(text_of(corpus.stream, {17, 21}), "aAbb");
    EXPECT_EQ(text_of(corpus.stream, {1, 3}), "aa");
}

TEST_F(SplitOfTexts, OfOneFileIsItsLastTenth) {
    Corpus corpus = open({"0123456789abcdefghij"});
    const TokenSplit split = split_each_file(corpus), before = split_for_validation(corpus.stream.all());
    EXPECT_EQ(split.train, before.train);
    EXPECT_EQ(split.validation, before.validation);
    EXPECT_EQ(text_of(corpus.stream, corpus.stream.all()), "0123456789abcdefghij");
}

TEST_F(SplitOfTexts, KnowsTheFilesOfATokenizedText) {
    std::vector<std::string> texts;
    std::string joined;
    for (const char letter : {'k', 'm', 'q'}) {
        std::string text;
        for (int i = 0; i < 400; ++i) text += std::string(1, letter) + "o ";
        texts.push_back(text + "\n");
        joined += (joined.empty() ? "" : "\n") + texts.back();
    }
    const fs::path tokenizer = write_tokenizer_of(joined);
    Corpus corpus = open(texts, {.tokenizer = tokenizer});
    // Cut at files, they are the tokens of the whole.
    EXPECT_EQ(tokens_of(corpus.stream, corpus.stream.all()), corpus.tokenizer->encode(joined));
    ASSERT_EQ(corpus.stream.files().size(), 3u);
    const TokenSplit split = split_each_file(corpus);
    const std::string validation = corpus.tokenizer->decode(tokens_of(corpus.stream, split.validation));
    for (const char letter : {'k', 'm', 'q'})
        EXPECT_NEAR(static_cast<double>(std::ranges::count(validation, letter)), 40, 2) << validation;
}

TEST_F(SplitOfTexts, DocumentsStayOnTheirSideWhateverIsAdded) {
    const auto documents_in = [](const Corpus& corpus, TokenRange range) {
        std::set<std::string> documents;
        std::string text = corpus.tokenizer->decode(tokens_of(corpus.stream, range));
        const std::string end = "<|endoftext|>";
        for (std::size_t at = text.find(end); at != text.npos; at = text.find(end)) {
            documents.insert(text.substr(0, at));
            text.erase(0, at + end.size());
        }
        return documents;
    };
    const fs::path tokenizer = write_tokenizer_of("one two three");
    const auto split_of = [&](std::set<std::string>* trained = nullptr) {
        Corpus corpus = open_corpus({.texts = {directory_ / "notes"},
                                     .tokenizer = tokenizer,
                                     .model_vocabulary = 512,
                                     .documents = true},
                                    pool_);
        const TokenSplit split = split_by_name(corpus);
        if (trained) *trained = documents_in(corpus, split.train);
        return documents_in(corpus, split.validation);
    };
    for (int i = 0; i < 100; ++i)
        write_file(directory_ / "notes" / ("n" + std::to_string(i) + ".md"), "single" + std::to_string(i));
    const auto write_many = [&](int count) {
        std::string text;
        for (int i = 0; i < count; ++i) text += "many" + std::to_string(i) + "<|endoftext|>";
        write_file(directory_ / "notes" / "sub" / "many.txt", text);
    };
    write_many(1);
    const bool first_is_out = split_of().contains("many0");
    write_many(100);
    std::set<std::string> trained;
    const std::set<std::string> before = split_of(&trained);
    EXPECT_GT(before.size(), 8u);
    EXPECT_LT(before.size(), 40u);
    EXPECT_EQ(before.contains("many0"), first_is_out);
    // Ten files and ten documents more, one file less, in another folder.
    for (int i = 100; i < 110; ++i)
        write_file(directory_ / "notes" / ("a" + std::to_string(i) + ".md"), "single" + std::to_string(i));
    write_many(110);
    fs::remove(directory_ / "notes" / "n50.md");
    std::set<std::string> after = split_of();
    for (const std::string& document : after) EXPECT_FALSE(trained.contains(document)) << document;
    for (const std::string& document : before)
        EXPECT_TRUE(after.contains(document) || document == "single50") << document;
    // One of more than a quarter of all is trained on, whatever its name; where that leaves none, a tenth is
    // cut off.
    for (int i = 0; i < 20; ++i) {
        fs::remove_all(directory_ / "notes");
        write_file(directory_ / "notes" / (std::to_string(i) + ".md"), std::string(1000, 'x'));
        write_file(directory_ / "notes" / (std::to_string(i) + "b.md"), "y");
        EXPECT_FALSE(split_of().contains(std::string(1000, 'x')));
    }
}

TEST_F(SplitOfTexts, CutsNoDocument) {
    const fs::path tokenizer = write_tokenizer_of("one two three");
    const std::string end = "<|endoftext|>";
    const auto text_of_part = [](const Corpus& corpus, TokenRange range) {
        return corpus.tokenizer->decode(tokens_of(corpus.stream, range));
    };
    std::vector<std::string> ten(1);
    for (int i = 0; i < 10; ++i) ten[0] += "doc" + std::to_string(i) + end;
    Corpus one = open(ten, {.tokenizer = tokenizer, .documents = true});
    TokenSplit split = split_each_file(one);
    EXPECT_EQ(text_of_part(one, split.validation), "doc9" + end);
    // Some of the files that are a document each are kept whole.
    std::vector<std::string> single;
    for (int i = 0; i < 10; ++i) single.push_back("doc" + std::to_string(i));
    Corpus many = open(single, {.tokenizer = tokenizer, .documents = true});
    split = split_each_file(many);
    EXPECT_EQ(text_of_part(many, split.validation), "doc5" + end);
    EXPECT_EQ(many.ends->among(split.train), 9u);
    EXPECT_EQ(many.ends->among(split.validation), 1u);
    Corpus some = open({"", "doc"}, {.tokenizer = tokenizer, .documents = true});
    EXPECT_NE(some.description.find(", in 1 document\nleft out: "), std::string::npos) << some.description;
    // One document alone is cut, as there is no other way.
    Corpus alone = open({"one two three one two three"}, {.tokenizer = tokenizer, .documents = true});
    EXPECT_GT(split_each_file(alone).validation.size(), 0u);
}

}  // namespace
}  // namespace mantissa
