// Token files: what is read, what is refused and with which words, and the writer.
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/data/token_file.h"
#include "mantissa/data/token_stream.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;

template <class T>
std::string bytes_of(std::initializer_list<T> values) {
    return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

std::string llmc_file(std::int32_t magic, std::int32_t version, std::int32_t count,
                      const std::string& payload) {
    return bytes_of({magic, version, count}) + std::string(1012, '\0') + payload;
}

std::string npy_file(const std::string& descr, const std::string& shape, const std::string& payload) {
    const std::string header =
        "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
    return "\x93NUMPY" + std::string{1, 0, static_cast<char>(header.size()), 0} + header + payload;
}

class Shards : public ::testing::Test {
  protected:
    fs::path write(const std::string& name, const std::string& bytes) {
        std::ofstream(directory / name, std::ios::binary) << bytes;
        return directory / name;
    }
    std::vector<std::int32_t> tokens_of(const std::string& bytes, TokenFormat format = TokenFormat::detect) {
        const TokenFile file(write("t", bytes), format);
        std::vector<std::int32_t> tokens(file.size());
        file.copy(0, tokens);
        return tokens;
    }
    std::string refusal(const std::string& bytes, TokenFormat format = TokenFormat::detect,
                        std::int64_t vocabulary = 0) {
        const fs::path path = write("t.bin", bytes);
        try {
            const TokenStream stream({path}, {.format = format, .vocabulary = vocabulary});
        } catch (const UserError& error) {
            const std::string message = error.what();
            EXPECT_EQ(message.rfind(path.string() + ": ", 0), 0u) << message;
            EXPECT_EQ(message.find('\n'), message.npos) << "more than one line";
            return message.substr(path.string().size() + 2);
        }
        return "accepted";
    }
    TemporaryDirectory directory;
};

using Tokens = std::vector<std::int32_t>;
const std::string three = bytes_of<std::uint16_t>({5, 65535, 7});

TEST_F(Shards, ReadsEveryFormat) {
    const Tokens expected = {5, 65535, 7};
    EXPECT_EQ(tokens_of(llmc_file(20240520, 1, 3, three)), expected);
    EXPECT_EQ(tokens_of(llmc_file(20240801, 7, 3, bytes_of<std::uint32_t>({5, 65535, 7}))), expected);
    EXPECT_EQ(tokens_of(three), expected);
    EXPECT_EQ(tokens_of(npy_file("<u2", "(3,)", three)), expected);
    EXPECT_EQ(tokens_of(npy_file("<u4", "(2,)", bytes_of<std::uint32_t>({100'000, 0x7fffffff}))),
              (Tokens{100'000, 0x7fffffff}));
    EXPECT_EQ(tokens_of(npy_file("<i4", "(2,)", bytes_of<std::int32_t>({0, 9}))), (Tokens{0, 9}));
    EXPECT_EQ(tokens_of(npy_file("<i8", "(1,)", bytes_of<std::int64_t>({12}))), Tokens{12});
    EXPECT_EQ(tokens_of(npy_file("|u1", "(2,)", "\x01\xff")), (Tokens{1, 255}));
    // Raw on request, whatever the bytes say.
    EXPECT_EQ(tokens_of(bytes_of({20240520, 1}), TokenFormat::raw).size(), 4u);
    EXPECT_EQ(TokenFile(write("t", three)).format(), TokenFormat::raw);
}

TEST_F(Shards, CutShortOrTooLong) {
    const std::string good = llmc_file(20240520, 1, 3, three);
    EXPECT_EQ(refusal(good), "accepted");
    EXPECT_EQ(refusal(good.substr(0, 1028)),
              "shard cut short: 3 tokens in its header need 1030 bytes, the file has 1028");
    EXPECT_EQ(refusal(good + "x"),
              "shard with extra bytes: 3 tokens in its header need 1030 bytes, the file has 1031");
    EXPECT_EQ(refusal(good.substr(0, 600)), "shard cut short: 600 bytes, the header alone has 1024");
    EXPECT_EQ(refusal(three + "x"), "7 bytes, expected an even number for raw 16-bit tokens");
    EXPECT_EQ(refusal(""), "is empty; expected tokens");
    EXPECT_EQ(refusal(llmc_file(20240520, 1, 0, "")), "holds no tokens");
    EXPECT_EQ(refusal(llmc_file(20240520, 1, -1, "")), "shard with -1 tokens in its header");
    EXPECT_EQ(refusal(npy_file("<u2", "(3,)", three.substr(1))),
              "shape (3) of 2-byte elements needs 6 bytes, the file has 5 after its header");
}

TEST_F(Shards, CutShortWhileTheyAreRead) {
    const Tokens many(100'000, 7);
    write_token_shard(directory / "t.bin", many);
    const TokenFile file(directory / "t.bin");
    fs::resize_file(directory / "t.bin", 2024);
    Tokens read(500);
    file.copy(0, read);
    EXPECT_EQ(read, Tokens(500, 7));
    try {
        file.copy(400, read);
        ADD_FAILURE() << "tokens that are not there were read";
    } catch (const UserError& error) {
        EXPECT_EQ(
            error.what(),
            (directory / "t.bin").string() +
                ": was cut short while it was read: it had 201024 bytes, of which those from 2024 on are "
                "gone");
    }
}

TEST_F(Shards, TextIsNoTokens) {
    const std::string text = "Die Wahrheit ist dem Menschen zumutbar..\n\xc3\xa4 ";
    const std::string message =
        "is text, expected token numbers; give it as `texts`, or make tokens of it by `encode_text`; if its "
        "bytes are meant as raw 16-bit tokens, say `tokens_format` raw";
    EXPECT_EQ(refusal(text), message);
    EXPECT_EQ(refusal(text + "x"), message) << "an odd number of bytes is not what is wrong";
    std::string much;
    while (much.size() < 100'000) much += text;
    EXPECT_EQ(refusal(much), message) << "the last character looked at may be cut";
    EXPECT_EQ(refusal(text, TokenFormat::raw), "accepted");
    EXPECT_EQ(refusal(text + std::string("\0\1", 2)), "accepted");
}

TEST_F(Shards, WrongMagicNumber) {
    EXPECT_EQ(refusal(llmc_file(20240521, 1, 3, three)),
              "wrong magic number 20240521, expected 20240520 (or 20240801 for uint32 tokens)");
    EXPECT_EQ(refusal(three + std::string(1024, 'x'), TokenFormat::llmc),
              "wrong magic number -65531, expected 20240520 (or 20240801 for uint32 tokens)");
    EXPECT_EQ(refusal(llmc_file(20240326, 3, 1024, three)),
              "magic number 20240326: model weights of llm.c, expected token shards");
    EXPECT_EQ(refusal(llmc_file(20240520, 2, 3, three)), "shard version 2, expected 1");
    EXPECT_EQ(refusal(llmc_file(20240801, 1, 3, three)), "shard version 1, expected 7");
    EXPECT_EQ(refusal(three, TokenFormat::npy), "not a .npy file: does not begin with \\x93NUMPY");
}

TEST_F(Shards, TokenAboveTheVocabulary) {
    for (const std::string& file :
         {three, llmc_file(20240520, 1, 3, three), npy_file("<u2", "(3,)", three)}) {
        EXPECT_EQ(refusal(file, TokenFormat::detect, 50257),
                  "token 65535 at position 1 is outside the vocabulary of 50257; was it made with another "
                  "tokenizer?");
        EXPECT_EQ(refusal(file, TokenFormat::detect, 65536), "accepted");
    }
    // No vocabulary has these, so they are refused unasked.
    EXPECT_EQ(refusal(npy_file("<i4", "(2,)", bytes_of<std::int32_t>({3, -1}))),
              "token -1 at position 1 is negative; expected 0 or more");
    EXPECT_EQ(
        refusal(npy_file("<u4", "(1,)", bytes_of<std::uint32_t>({0x80000000u}))),
        "token 2147483648 at position 0 is outside the vocabulary of 2147483648; was it made with another "
        "tokenizer?");
}

TEST_F(Shards, ArraysThatAreNoTokens) {
    EXPECT_EQ(refusal(npy_file("<f4", "(1,)", "abcd")),
              "elements of type f4, expected tokens as u1, u2, u4, i4 or i8");
    EXPECT_EQ(refusal(npy_file("<u2", "(1,3)", three)),
              "array of 2 dimensions, expected one dimension of tokens");
}

TEST_F(Shards, FilesFormOneStream) {
    const TokenStream stream(
        {write("a", three), write("b", llmc_file(20240520, 1, 2, bytes_of<std::uint16_t>({8, 9}))),
         write("c", npy_file("<u2", "(1,)", bytes_of<std::uint16_t>({1})))},
        {});
    ASSERT_EQ(stream.size(), 6u);
    const Tokens all = {5, 65535, 7, 8, 9, 1};
    for (std::size_t begin = 0; begin <= 6; ++begin)
        for (std::size_t end = begin; end <= 6; ++end) {
            Tokens read(end - begin);
            stream.copy(begin, read);
            EXPECT_EQ(read, Tokens(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                   all.begin() + static_cast<std::ptrdiff_t>(end)));
        }
    EXPECT_EQ(stream.description(), "3 files (llmc, npy, raw), 6 tokens");
    Tokens beyond(2);
    EXPECT_THROW(stream.copy(5, beyond), InternalError);
    EXPECT_THROW(TokenStream(std::vector<std::filesystem::path>{}, {}), UserError);
}

TEST_F(Shards, WriterGivesTheFormatToTheByte) {
    write_token_shard(directory / "t.bin", Tokens{5, 65535, 7});
    EXPECT_EQ(read_file(directory / "t.bin"), llmc_file(20240520, 1, 3, three));
    try {
        write_token_shard(directory / "u.bin", Tokens{65536});
        FAIL();
    } catch (const UserError& error) {
        EXPECT_EQ(error.what(), (directory / "u.bin").string() +
                                    ": token 65536 does not fit in the 16 bits of this format");
    }
    EXPECT_FALSE(fs::exists(directory / "u.bin"));
}

TEST_F(Shards, WriterSplitsIntoShards) {
    Tokens tokens(1000);
    std::iota(tokens.begin(), tokens.end(), 0);
    TokenShardWriter writer(directory / "text", {.tokens_per_shard = 300});
    for (std::size_t i = 0; i < tokens.size(); i += 77)
        writer.append(std::span(tokens).subspan(i, std::min<std::size_t>(77, tokens.size() - i)));
    EXPECT_TRUE(fs::exists(directory / "text_000002.bin"));
    EXPECT_FALSE(fs::exists(directory / "text_000003.bin")) << "the last shard appears when it is whole";
    const auto files = writer.finish();
    ASSERT_EQ(files.size(), 4u);
    EXPECT_EQ(files[3], directory / "text_000003.bin");
    const TokenStream stream(files, {.format = TokenFormat::llmc, .vocabulary = 1000});
    Tokens read(stream.size());
    stream.copy(0, read);
    EXPECT_EQ(read, tokens);
    {
        TokenShardWriter abandoned(directory / "other", {});
        abandoned.append(tokens);
    }
    EXPECT_FALSE(fs::exists(directory / "other_000000.bin"));
}

}  // namespace
}  // namespace mantissa
