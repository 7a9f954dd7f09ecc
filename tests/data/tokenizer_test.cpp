// Encoding and decoding: every byte comes back, the two ways to merge agree, and what disagrees is refused.
#include "mantissa/data/tokenizer.h"

#include <gtest/gtest.h>

#include "mantissa/base/clock.h"
#include "mantissa/base/random.h"
#include "mantissa/data/encode_text.h"
#include "mantissa/data/tokenizer_tables.h"
#include "tests/data/tokenizer_test_data.h"
#include "tests/support/error_of.h"

namespace mantissa {

namespace {

using testing::error_of;

std::string random_bytes(std::uint64_t seed, std::size_t count) {
    const RandomStream random{.seed = seed};
    std::string bytes;
    for (std::size_t i = 0; i < count; ++i) bytes += static_cast<char>(random.bits(i));
    return bytes;
}

std::string every_scalar() {
    std::string text;
    for (char32_t c = 0; c < 0x110000; ++c)
        if (c < 0xD800 || c >= 0xE000) append_utf8(text, c);
    return text;
}

/// GPT-2's tokenizer where its files are at hand, else the small one.
Tokenizer any_tokenizer() { return shared_data() ? load_gpt2() : Tokenizer(small_parts()); }

}  // namespace

TEST(Tokenizer, MergesInOrderOfRank) {
    const Tokenizer tokenizer(small_parts());
    EXPECT_EQ(tokenizer.encode("hello hello"), (Ids{259, 260}));
    EXPECT_EQ(tokenizer.encode("hell"), (Ids{256, 257}));
    EXPECT_EQ(tokenizer.encode("lll"), (Ids{257, 'l'}));  // from the left
    EXPECT_EQ(tokenizer.encode(""), Ids{});
    EXPECT_EQ(tokenizer.vocabulary(), 262);
}

TEST(Tokenizer, SpecialTokensAreFoundUnlessTheyAreText) {
    const Tokenizer tokenizer(small_parts());
    const std::string text = "hello<|endoftext|>hello";
    EXPECT_EQ(tokenizer.encode(text), (Ids{259, 261, 259}));
    EXPECT_EQ(tokenizer.encode_whole(text), (Ids{259, 261, 259}));
    const Ids plain = tokenizer.encode(text, {.specials = SpecialsInText::as_text});
    EXPECT_EQ(std::count(plain.begin(), plain.end(), 261), 0);
    EXPECT_EQ(tokenizer.decode(plain), text);
    EXPECT_EQ(tokenizer.special("<|endoftext|>"), 261);
    EXPECT_EQ(tokenizer.special("<|other|>"), std::nullopt);
    EXPECT_EQ(tokenizer.encode("<|endoftext|><|endoftext|").front(), 261);
}

TEST(Tokenizer, OfTwoSpecialTokensTheLeftmostThenTheLongest) {
    TokenizerParts parts = small_parts();
    parts.specials.push_back({"<|end", 262});
    parts.tokens.emplace_back("<|end");
    const Tokenizer tokenizer(std::move(parts));
    EXPECT_EQ(tokenizer.encode("<|end<|endoftext|><|end"), (Ids{262, 261, 262}));
}

TEST(Tokenizer, PrefixSpaceBeforeTheFirstWordOnly) {
    TokenizerParts parts = small_parts();
    parts.pipeline.cuts[0].prefix_space = PrefixSpace::unless_there;
    const Tokenizer tokenizer(std::move(parts));
    EXPECT_EQ(tokenizer.encode("hello"), (Ids{260}));
    EXPECT_EQ(tokenizer.encode(" hello hello"), (Ids{260, 260}));
    EXPECT_EQ(tokenizer.encode("hello", {.continues = true}), (Ids{259}));
    EXPECT_EQ(tokenizer.encode("hello<|endoftext|>hello"), (Ids{260, 261, 260}));
    EXPECT_EQ(tokenizer.encode("'shello"), (Ids{' ', '\'', 's', 259}));
}

TEST(Tokenizer, RoundTripOfEveryUnicodeScalar) {
    const Tokenizer tokenizer = any_tokenizer();
    const std::string text = every_scalar();
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    Encoder encoder(tokenizer);
    for (char32_t c = 0; c < 0x110000; ++c) {
        if (c >= 0xD800 && c < 0xE000) continue;
        std::string alone;
        append_utf8(alone, c);
        Ids ids;
        encoder.encode(alone, ids);
        ASSERT_EQ(tokenizer.decode(ids), alone) << std::hex << static_cast<std::uint32_t>(c);
    }
}

TEST(Tokenizer, RoundTripOfRandomBytes) {
    const Tokenizer tokenizer = any_tokenizer();
    Encoder encoder(tokenizer);
    for (std::size_t i = 0; i < 2000; ++i) {
        const std::string bytes = random_bytes(i, i % 300);
        Ids ids;
        encoder.encode(bytes, ids);
        ASSERT_EQ(tokenizer.decode(ids), bytes) << i;
    }
    const std::string long_bytes = random_bytes(1, 1 << 20);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(long_bytes)), long_bytes);
}

TEST(Tokenizer, BothWaysToMergeAgree) {
    // An alphabet of two and all short merges over it: many pairs compete and overlap.
    TokenizerParts parts = small_parts();
    const auto join = [&](TokenId left, TokenId right) {
        parts.merges.push_back({left, right, static_cast<TokenId>(parts.tokens.size())});
        parts.tokens.push_back(parts.tokens[left] + parts.tokens[right]);
    };
    join('a', 'b');  // 262
    join('a', 'a');  // 263
    join(262, 262);  // abab
    join('b', 263);  // baa
    join(263, 263);  // aaaa
    join(262, 'a');  // aba
    const Tokenizer tokenizer(std::move(parts));
    PairTable pairs;
    pairs.reserve(tokenizer.parts().merges.size());
    std::uint32_t rank = 0;
    for (const Merge& merge : tokenizer.parts().merges)
        pairs.insert({merge.left, merge.right, merge.result, rank++});
    for (std::uint64_t i = 0; i < 20000; ++i) {
        std::string piece = random_bytes(i, 1 + i % longest_short_piece);
        for (char& c : piece) c = (c & 3) == 0 ? 'b' : 'a';
        Ids quadratic, linked;
        const Ids bytes(piece.begin(), piece.end());
        merge_short_piece(bytes, pairs, quadratic);
        merge_long_piece(bytes, pairs, linked);
        ASSERT_EQ(quadratic, linked) << piece;
    }
}

TEST(Tokenizer, CachedPiecesAreNotMixedUp) {
    // Pieces that differ only in zero bytes at the end, or beyond the eighth byte.
    const Tokenizer tokenizer(small_parts());
    Encoder encoder(tokenizer);
    for (int round = 0; round < 2; ++round) {
        for (const std::string& text :
             {std::string("!"), std::string("!\0", 2), std::string("!\0\0", 3), std::string("abcdefgh"),
              std::string("abcdefghi"), std::string("abcdefghijklmnop"), std::string("abcdefghijklmnopq")}) {
            Ids ids;
            encoder.encode(text, ids);
            EXPECT_EQ(tokenizer.decode(ids), text);
        }
    }
}

TEST(Tokenizer, LongRunsTakeTimeInProportion) {
    // 1 MB of one letter, of "ab", and of spaces: each is one piece. A quadratic merge would take hours; 30 s
    // leaves room for sanitizers.
    const Tokenizer tokenizer = any_tokenizer();
    const Stopwatch watch;
    for (const std::string_view unit : {"a", "ab", " ", "\u4e09", "!"}) {
        std::string text;
        while (text.size() < (1u << 20)) text += unit;
        EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    }
    EXPECT_LT(watch.seconds(), 30.0);
}

TEST(Tokenizer, PartsOnManyThreadsGiveTheTokensOfTheWhole) {
    const Tokenizer tokenizer = any_tokenizer();
    std::string text;
    for (std::uint64_t i = 0; text.size() < (5u << 20); ++i) {
        text += i % 3 == 0 ? " hello" : i % 7 == 0 ? "\n\n  " : " word";
        if (i % 11 == 0) append_utf8(text, 0x4E00 + static_cast<char32_t>(i % 5000));
    }
    ThreadPool pool(3);
    Ids parts;
    std::size_t bytes = 0;
    encode_text(tokenizer, text, pool, [&](std::span<const TokenId> ids, std::size_t done) {
        parts.insert(parts.end(), ids.begin(), ids.end());
        EXPECT_GT(done, bytes);
        bytes = done;
    });
    EXPECT_EQ(bytes, text.size());
    EXPECT_EQ(parts, tokenizer.encode(text));
}

TEST(StreamDecoder, HoldsBackIncompleteCharacters) {
    const Tokenizer tokenizer(small_parts());
    StreamDecoder decoder(tokenizer);
    EXPECT_EQ(decoder.push('a'), "a");
    EXPECT_EQ(decoder.push(0xF0), "");
    EXPECT_EQ(decoder.push(0x9F), "");
    EXPECT_EQ(decoder.push(0x98), "");
    EXPECT_EQ(decoder.push(0x80), "\U0001F600");
    EXPECT_EQ(decoder.finish(), "");
    EXPECT_EQ(decoder.push(0xE4), "");
    EXPECT_EQ(decoder.push('x'), "\uFFFDx");
    EXPECT_EQ(decoder.push(0xE4), "");
    EXPECT_EQ(decoder.finish(), "\uFFFD");
    EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, ReplacesEachMaximalSubpartOnce) {
    // The example of The Unicode Standard 16.0, table 3-11, which Python's decoder follows, too.
    const Tokenizer tokenizer(small_parts());
    StreamDecoder decoder(tokenizer);
    std::string text;
    for (const unsigned char byte : std::string("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"))
        text += decoder.push(byte);
    text += decoder.finish();
    EXPECT_EQ(text, "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
}

TEST(Tokenizer, RefusesIdsOutsideTheVocabulary) {
    const Tokenizer tokenizer(small_parts());
    const Ids above = {259, 262};
    EXPECT_EQ(
        error_of([&] { tokenizer.decode(above); }),
        "token 262 is outside the vocabulary of 262 (small): the tokens were made with another tokenizer");
    EXPECT_EQ(
        error_of([&] { StreamDecoder(tokenizer).push(-1); }),
        "token -1 is outside the vocabulary of 262 (small): the tokens were made with another tokenizer");
}

TEST(Tokenizer, RefusesPartsThatDisagree) {
    const auto error_with = [](auto&& change) {
        TokenizerParts parts = small_parts();
        change(parts);
        return error_of([&] { Tokenizer tokenizer(std::move(parts)); });
    };
    const std::string start = "small: the tokenizer disagrees with itself: ";
    EXPECT_EQ(error_with([](TokenizerParts&) {}), "no error");
    EXPECT_EQ(error_with([](TokenizerParts& p) { p.tokens[7] = "zz"; }),
              start + "no token stands for the byte 0x07; a byte-level tokenizer has all 256");
    EXPECT_EQ(error_with([](TokenizerParts& p) { p.tokens[7] = "a"; }),
              start + "tokens 7 and 97 are the same bytes");
    EXPECT_EQ(error_with([](TokenizerParts& p) { p.tokens[256] = ""; }), start + "token 256 is empty");
    EXPECT_EQ(error_with([](TokenizerParts& p) { p.merges[0].right = 'f'; }),
              start + "merge 1 joins tokens 104 and 102, which do not make up token 256");
    EXPECT_EQ(error_with([](TokenizerParts& p) { p.merges[1].left = 300; }),
              start + "merge 2 names token 300, outside the vocabulary");
    EXPECT_EQ(error_with([](TokenizerParts& p) { p.merges.push_back(p.merges[0]); }),
              start + "merge 6 repeats an earlier merge");
    EXPECT_EQ(error_with([](TokenizerParts& p) { p.specials[0].id = 900; }),
              start + "the special token \"<|endoftext|>\" has id 900, outside the vocabulary of 262");
    EXPECT_EQ(error_with([](TokenizerParts& p) {
                  p.specials.push_back({"<|x|>", 261});
              }),
              start + "token 261 is special twice, as \"<|x|>\" too");
    EXPECT_EQ(error_with([](TokenizerParts& p) { p.specials[0].text = ""; }),
              start + "special token 261 is empty");
}

}  // namespace mantissa
