// Regular expressions: what they find, case by case as Oniguruma does, and what is refused. The fixture of
// random ones is made by bench/peers/text_pattern_fixture.py; those of published tokenizers:
// tokenizer_kinds_test.cpp.
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mantissa/base/file.h"
#include "mantissa/data/text_pattern.h"
#include "tests/data/awkward_strings.h"

namespace mantissa {
namespace {

/// All matches, with a bar between two.
std::string found(std::string_view expression, std::string_view text, Spaces spaces = Spaces::plain) {
    const auto pattern = TextPattern::of_expression(expression, spaces);
    if (!pattern) return "refused: " + pattern.reason();
    std::string all;
    for (std::size_t at = 0; at < text.size();) {
        const TextPattern::Match match = pattern->find(text, at);
        if (match.begin < match.end)
            all += (all.empty() ? "" : "|") + std::string(text.substr(match.begin, match.end - match.begin));
        at = match.end;
    }
    return all;
}

TEST(TextPattern, FindsTheLeftmostByTheFirstChoice) {
    EXPECT_EQ(found("a|ab", "xabab"), "a|a");
    EXPECT_EQ(found("a+b?", "aab aa"), "aab|aa");
    EXPECT_EQ(found("\\p{N}{1,3}", "12345 \u0664"), "123|45|\u0664");
    EXPECT_EQ(found("\\p{N}{1,3}+", "12345 123"), "12345|123");
    EXPECT_EQ(found("x{2}|y{2,}", "xxx yyy y"), "xx|yyy");
    EXPECT_EQ(found("a*a", "aaa"), "aaa");
    EXPECT_EQ(found("a*+a|b", "aab"), "b");
    EXPECT_EQ(found("\\s+(?!\\S)|\\s+", "a  b \n"), " | | \n");
    EXPECT_EQ(found("a(?=b|c)", "abaac"), "a|a");
    EXPECT_EQ(found("a$", "ba\nca"), "a|a");
    EXPECT_EQ(found("(?:ab)?c(d|e)", "abcdce"), "abcd|ce");
    EXPECT_EQ(found("(?:ab|a)*c|(?:b(?!c)a)+", "aababcbababc"), "aababc|baba|c");
    EXPECT_EQ(found("[^\\r\\n\\p{L}]?\\p{Lu}+", " AB\nC"), " AB|C");
}

TEST(TextPattern, Classes) {
    EXPECT_EQ(found("[a-c\\-\\]x]+", "ab-]xd"), "ab-]x");
    EXPECT_EQ(found("[\\p{L}&&[^a-c]]+", "abcdef"), "def");
    EXPECT_EQ(found(" ?[^(\\s|[.,!?\u2026])]+", "a|b(c[d! e\u2026f"), "a|b|c[d| e|f");
    EXPECT_EQ(found("[\u4e00-\u9fa5]+", "a\u4f60\u597db"), "\u4f60\u597d");
    EXPECT_EQ(found("[^\u4e00-\u9fa5a]+", "a\u4f60\u00e9b"), "\u00e9b");
    EXPECT_EQ(found("\\P{L}+|\\p{^Lu}", "a1 B"), "a|1 ");
    EXPECT_EQ(found("\\x41|\\u0062|\\x{1F600}", "Ab\U0001F600"), "A|b|\U0001F600");
    EXPECT_EQ(found(".+", "ab\ncd"), "ab|cd");
    EXPECT_EQ(found("\\S+", "a\xFF b"), "a\xFF|b");  // what is not UTF-8 is no space
}

TEST(TextPattern, LettersOfAnyCase) {
    EXPECT_EQ(found("(?i:'s|'LL)", "'s'S'\u017F'll'Ll's"), "'s|'S|'\u017F|'ll|'Ll|'s");
    EXPECT_EQ(found("'(?i:[sk])S", "'\u212AS'ks"), "'\u212AS");
}

TEST(TextPattern, VisibleSpaces) {
    EXPECT_EQ(found("\u2581+|\\s", "a  b\n", Spaces::visible), "  |\n");
    EXPECT_EQ(found(" |[^\\s]", "a b", Spaces::visible), "a| |b");
}

TEST(TextPattern, RandomExpressionsFindWhatOnigurumaFinds) {
    const auto fixture =
        nlohmann::json::parse(read_file(std::string(MANTISSA_SOURCE_DIR) + "/tests/data/text_patterns.json"));
    ASSERT_GT(fixture["cases"].size(), 400u);
    for (const auto& made : fixture["cases"]) {
        const auto pattern = TextPattern::of_expression(made[0].get<std::string>());
        ASSERT_TRUE(pattern) << made[0] << pattern.reason();
        for (const auto& text_and_places : made[1]) {
            const auto text = text_and_places[0].get<std::string>();
            std::vector<std::array<std::size_t, 2>> places;
            for (std::size_t at = 0; at < text.size();) {
                const auto [begin, end] = pattern->find(text, at);
                if (begin < end)
                    places.push_back(
                        {characters_of(text.substr(0, begin)), characters_of(text.substr(0, end))});
                at = end;
            }
            EXPECT_EQ(nlohmann::json(places), text_and_places[1]) << made[0] << " in " << text_and_places[0];
        }
    }
}

TEST(TextPattern, TimeIsLinearInRowsOfAllKinds) {
    const auto pattern = *TextPattern::of_expression(gpt2_expression);
    const std::string text =
        std::string(1 << 20, ' ') + std::string(1 << 20, 'a') + std::string(1 << 20, '\n');
    int matches = 0;
    for (std::size_t at = 0; at < text.size(); ++matches) at = pattern.find(text, at).end;
    EXPECT_EQ(matches, 3);
}

TEST(TextPattern, OtherSyntaxIsRefusedByName) {
    EXPECT_EQ(found("a*", ""), "refused: an expression that may match nothing");
    EXPECT_EQ(found("\\bx", ""), "refused: \\b");
    EXPECT_EQ(found("\\p{Han}", ""), "refused: \\p{Han}");
    EXPECT_EQ(found("(?<!a)b", ""), "refused: (?<!");
    EXPECT_EQ(found("^a", ""), "refused: ^");
    EXPECT_EQ(found("a+?", ""), "refused: a lazy a+?");
    EXPECT_EQ(found("(ab){2}", ""), "refused: a repeated (ab){2}");
    EXPECT_EQ(found("(a?)+b", ""), "refused: a repeated (a?)+");
    EXPECT_EQ(found("[\\p{L", ""), "refused: \\p{L");
    EXPECT_EQ(found(std::string(1 << 20, '('), ""), "refused: a group or class within so many others");
    EXPECT_EQ(found(std::string(1 << 20, '['), ""), "refused: a group or class within so many others");
    EXPECT_EQ(found("(a", ""), "refused: a group that does not end");
    EXPECT_EQ(found("a)", ""), "refused: )");
    EXPECT_EQ(found("[a", ""), "refused: an expression that ends early");
    EXPECT_EQ(found("(?i:stop)", ""), "refused: (?i: of st");
    EXPECT_EQ(found("[[:alpha:]]", ""), "refused: [:");
    EXPECT_EQ(found("a(?=bc)", ""), "refused: a look-ahead that is not of one character");
    EXPECT_EQ(found("a{3000}", ""), "refused: an expression of so many parts");
    EXPECT_EQ(found("[ab]{0,30}a[ab]{30}", ""), "refused: an expression of so many states");
}

}  // namespace
}  // namespace mantissa
