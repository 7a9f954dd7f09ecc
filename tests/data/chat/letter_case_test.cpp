// Letters in upper, lower and title case, as Python's str has them.
#include "mantissa/data/chat/letter_case.h"

#include <gtest/gtest.h>

namespace mantissa::inline v0::jinja {
namespace {

std::u32string in_case(Chars (*change)(CharSpan), std::u32string_view text) {
    Chars chars;
    for (const char32_t code : text) chars.push_back({code, {}});
    std::u32string out;
    for (const Char& c : change(chars)) out += c.code;
    return out;
}

TEST(LetterCase, UpperCaseIsTheWayBackFromLowerCaseButWhereItIsNot) {
    EXPECT_EQ(in_case(to_upper, U"az @[`{09"), U"AZ @[`{09");
    EXPECT_EQ(in_case(to_upper, U"\u00e9\u0101\u03c9\u044f\u10d0\u24d0\U00010428"),
              U"\u00c9\u0100\u03a9\u042f\u1c90\u24b6\U00010400");
    // Small letters of which two have one capital letter, and one that has another's.
    EXPECT_EQ(in_case(to_upper, U"k\u017f\u0131\u00b5\u03c2\u01c6\u01c5"), U"KSI\u039c\u03a3\u01c4\u01c4");
    EXPECT_EQ(in_case(to_upper, U"\u00df\ufb03\u0149\u1fb7\u1f80"),
              U"SSFFI\u02bcN\u0391\u0342\u0399\u1f08\u0399");
    EXPECT_EQ(in_case(to_upper, U"\u00c9\u4e00\U0001f600"), U"\u00c9\u4e00\U0001f600");
}

TEST(LetterCase, LowerCase) {
    EXPECT_EQ(in_case(to_lower, U"AZ\u00c9\u212a\u212b\u0130\u1e9e\u01c5"),
              U"az\u00e9k\u00e5i\u0307\u00df\u01c6");
    EXPECT_EQ(in_case(to_lower, U"\u039f\u03a3 \u03a3\u0391"), U"\u03bf\u03c2 \u03c3\u03b1");
}

TEST(LetterCase, TitleCaseIsUpperCaseButWhereItIsNot) {
    const auto first = [](char32_t code) { return in_case(to_capitalized, std::u32string(1, code)); };
    EXPECT_EQ(first(U'z'), U"Z");
    EXPECT_EQ(first(U'\u0101'), U"\u0100");
    EXPECT_EQ(first(U'\u01c6'), U"\u01c5");  // a digraph
    EXPECT_EQ(first(U'\u01c5'), U"\u01c5");
    EXPECT_EQ(first(U'\u10d0'), U"\u10d0");  // Georgian has no title case
    EXPECT_EQ(first(U'\u00df'), U"Ss");
    EXPECT_EQ(first(U'\u1f80'), U"\u1f88");
    EXPECT_EQ(first(U'\u1fb7'), U"\u0391\u0342\u0345");
    EXPECT_EQ(in_case(to_capitalized, U"\u01c6AB"), U"\u01c5ab");
}

}  // namespace
}  // namespace mantissa::inline v0::jinja
