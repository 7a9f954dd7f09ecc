// Regular expressions: what they find, case by case as Oniguruma does, and what is refused. The expressions
// of published tokenizers: tokenizer_kinds_test.cpp.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mantissa/data/text_pattern.h"

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

TEST(TextPattern, ExpressionsWrittenOutByHandFindTheSame) {
    std::string text;
    for (int i = 0; i < 4000; ++i) {
        constexpr const char* parts[] = {
            " ", "  ", "\n", "\r", "\t",     "a",      "B",      "'s",     "'S",   "'ll",     "'",
            "1", "23", "!",  "?",  "\u00e9", "\u3000", "\u0301", "\u0664", "\xFF", "'\u017F", "\xE3\x80"};
        text += parts[(i * 2654435761U >> 7) % std::size(parts)];
    }
    const std::string any_case = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|";
    const std::string rest = "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    for (const std::string& expression :
         {std::string(gpt2_expression), any_case + "\\p{N}{1,3}" + rest, any_case + "\\p{N}" + rest})
        EXPECT_EQ(found(expression, text), found("(?:" + expression + ")", text));
}

TEST(TextPattern, OtherSyntaxIsRefusedByName) {
    EXPECT_EQ(found("a*", ""), "refused: an expression that may match nothing");
    EXPECT_EQ(found("\\bx", ""), "refused: \\b");
    EXPECT_EQ(found("\\p{Han}", ""), "refused: \\p{Han}");
    EXPECT_EQ(found("(?<!a)b", ""), "refused: (?<!");
    EXPECT_EQ(found("^a", ""), "refused: ^");
    EXPECT_EQ(found("a+?", ""), "refused: a lazy a+?");
    EXPECT_EQ(found("(ab)+", ""), "refused: a repeated (ab)+");
    EXPECT_EQ(found("(a", ""), "refused: a group that does not end");
    EXPECT_EQ(found("a)", ""), "refused: )");
    EXPECT_EQ(found("[a", ""), "refused: an expression that ends early");
    EXPECT_EQ(found("(?i:stop)", ""), "refused: (?i: of st");
    EXPECT_EQ(found("[[:alpha:]]", ""), "refused: [:");
}

}  // namespace
}  // namespace mantissa
