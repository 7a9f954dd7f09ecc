// The split rule, case by case, and the places where a text may be cut.
#include <gtest/gtest.h>

#include "mantissa/base/random.h"
#include "mantissa/data/text_file.h"
#include "mantissa/data/tokenizer_split.h"
#include "mantissa/data/unicode.h"
#include "tests/data/tokenizer_test_data.h"

namespace mantissa {

namespace {

std::vector<std::string> pieces(std::string_view text) {
    std::vector<std::string> found;
    for_each_piece(TextPipeline::gpt2().cuts[0], text,
                   [&](std::string_view piece) { found.emplace_back(piece); });
    return found;
}

using Pieces = std::vector<std::string>;

const SafeCuts& gpt2_cuts() {
    static const SafeCuts cuts(TextPipeline::gpt2());
    return cuts;
}

}  // namespace

TEST(TokenizerSplit, Words) {
    EXPECT_EQ(pieces("Hello world"), (Pieces{"Hello", " world"}));
    EXPECT_EQ(pieces("in 1999, x2"), (Pieces{"in", " 1999", ",", " x", "2"}));
    EXPECT_EQ(pieces("a!?b"), (Pieces{"a", "!?", "b"}));
    EXPECT_EQ(pieces(" "), (Pieces{" "}));
    EXPECT_EQ(pieces(""), Pieces{});
}

TEST(TokenizerSplit, ContractionsAreCaseSensitiveAndNeedNoWordBefore) {
    EXPECT_EQ(pieces("don't we've I'll he'd I'm you're it's"),
              (Pieces{"don", "'t", " we", "'ve", " I", "'ll", " he", "'d", " I", "'m", " you", "'re", " it",
                      "'s"}));
    EXPECT_EQ(pieces("IT'S"), (Pieces{"IT", "'", "S"}));
    EXPECT_EQ(pieces("'sabc"), (Pieces{"'s", "abc"}));
    EXPECT_EQ(pieces("'rabc"), (Pieces{"'", "rabc"}));
    EXPECT_EQ(pieces(" 's"), (Pieces{" '", "s"}));
    EXPECT_EQ(pieces("!'s"), (Pieces{"!'", "s"}));
    EXPECT_EQ(pieces("'"), (Pieces{"'"}));
    EXPECT_EQ(pieces("'l"), (Pieces{"'", "l"}));
}

TEST(TokenizerSplit, WhiteSpaceLeavesItsLastCharacter) {
    EXPECT_EQ(pieces("a   b"), (Pieces{"a", "  ", " b"}));
    EXPECT_EQ(pieces("a\n\nb"), (Pieces{"a", "\n", "\n", "b"}));
    EXPECT_EQ(pieces("a\nb"), (Pieces{"a", "\n", "b"}));
    EXPECT_EQ(pieces("a  \n"), (Pieces{"a", "  \n"}));
    EXPECT_EQ(pieces("a \tb"), (Pieces{"a", " ", "\t", "b"}));
    // U+00A0 is white space but no space that a word takes along; its last one is two bytes long.
    EXPECT_EQ(pieces("a\u00A0b"), (Pieces{"a", "\u00A0", "b"}));
    EXPECT_EQ(pieces("a \u00A0b"), (Pieces{"a", " ", "\u00A0", "b"}));
}

TEST(TokenizerSplit, MongolianVowelSeparatorIsNoWhiteSpace) {
    EXPECT_EQ(character_class(0x180E), CharacterClass::other);
    EXPECT_EQ(pieces("a\u180Eb"), (Pieces{"a", "\u180E", "b"}));
}

TEST(TokenizerSplit, InvalidUtf8CountsAsNeitherLetterNorNumberNorSpace) {
    EXPECT_EQ(pieces("ab\xFF\xFE"
                     "cd"),
              (Pieces{"ab", "\xFF\xFE", "cd"}));
    EXPECT_EQ(pieces("a \xC3"), (Pieces{"a", " \xC3"}));
    EXPECT_EQ(pieces("\xED\xA0\x80z"), (Pieces{"\xED\xA0\x80", "z"}));  // a surrogate
    EXPECT_EQ(pieces("\xC0\xA0z"), (Pieces{"\xC0\xA0", "z"}));          // an overlong space
}

TEST(TokenizerSplit, TextMayBeCutBeforeWhiteSpaceAfterSomethingElse) {
    const std::string_view text = "ab  cd\u3000\n ef";
    EXPECT_EQ(gpt2_cuts().next(text, 0), 2u);
    EXPECT_EQ(gpt2_cuts().next(text, 3), text.size());  // "\n" follows the white space U+3000
    EXPECT_EQ(gpt2_cuts().next("abc", 1), 3u);
    EXPECT_EQ(gpt2_cuts().next("\xE3\x80 x", 1), 2u);  // U+3000 cut short is no white space
}

TEST(TokenizerSplit, PartsGiveThePiecesOfTheWhole) {
    const std::vector<std::string> fragments = {" ", "  ", "\n", "\u00A0", "\u3000", "a",       "'s",
                                                "'", "1",  "!",  "\u00E9", "\xFF",   "\xE3\x80"};
    const RandomStream random{.seed = 7};
    std::uint64_t draw = 0;
    for (int round = 0; round < 2000; ++round) {
        std::string text;
        for (int i = 0; i < 20; ++i) text += fragments[random.bits(draw++) % fragments.size()];
        Pieces cut;
        for (const std::string_view part : cut_text(text, 4, gpt2_cuts()))
            for (auto& piece : pieces(part)) cut.push_back(piece);
        ASSERT_EQ(cut, pieces(text)) << round;
    }
}

TEST(Unicode, DecodesByTheTableOfWellFormedSequences) {
    const auto step = [](std::string_view bytes) { return decode_utf8(bytes, 0); };
    EXPECT_EQ(step("\xF4\x8F\xBF\xBF").code_point, 0x10FFFFu);
    EXPECT_EQ(step("\xF4\x90\x80\x80").code_point, Utf8Step::invalid);
    EXPECT_EQ(step("\xF4\x90\x80\x80").length, 1u);
    EXPECT_EQ(step("\xE0\x80\x80").length, 1u);
    EXPECT_EQ(step("\xF0\x9F\x98x").length, 3u);
    EXPECT_FALSE(step("\xF0\x9F\x98x").cut_short);
    EXPECT_TRUE(step("\xF0\x9F\x98").cut_short);
    EXPECT_FALSE(step("\x80").cut_short);
}

TEST(Unicode, DecodesEveryScalar) {
    for (char32_t c = 0; c < 0x110000; ++c) {
        if (c >= 0xD800 && c < 0xE000) continue;
        std::string text;
        append_utf8(text, c);
        const Utf8Step step = decode_utf8(text, 0);
        ASSERT_EQ(step.code_point, c);
        ASSERT_EQ(step.length, text.size());
        ASSERT_EQ(character_before("x" + text, 1 + text.size()), 1u);
    }
}

}  // namespace mantissa
