// The normal forms of Unicode against UAX #15's own conditions and, case by case, its examples. All of its
// forms against Hugging Face's library: tokenizer_kinds_test.cpp.
#include <gtest/gtest.h>

#include "mantissa/data/unicode.h"

namespace mantissa {
namespace {

std::string form_of(std::string_view text, NormalForm form) {
    std::string normal;
    return normalize_unicode(text, form, normal) ? normal : std::string(text);
}

TEST(UnicodeNormalize, Examples) {
    using enum NormalForm;
    struct Case {
        const char *text, *nfc, *nfd, *nfkc, *nfkd;
    };
    const Case cases[] = {
        {"abc", "abc", "abc", "abc", "abc"},
        {"\u00C5", "\u00C5", "A\u030A", "\u00C5", "A\u030A"},
        {"\u212B", "\u00C5", "A\u030A", "\u00C5", "A\u030A"},
        {"\uFB01", "\uFB01", "\uFB01", "fi", "fi"},
        {"\u1E9B\u0323", "\u1E9B\u0323", "\u017F\u0323\u0307", "\u1E69", "s\u0323\u0307"},
        {"q\u0307\u0323", "q\u0323\u0307", "q\u0323\u0307", "q\u0323\u0307", "q\u0323\u0307"},
        {"\uD4DB", "\uD4DB", "\u1111\u1171\u11B6", "\uD4DB", "\u1111\u1171\u11B6"},
        {"\u1112\u1161\u11AB\u1100\u1173\u11AF", "\uD55C\uAE00", "\u1112\u1161\u11AB\u1100\u1173\u11AF",
         "\uD55C\uAE00", "\u1112\u1161\u11AB\u1100\u1173\u11AF"},
        {"\u0958", "\u0915\u093C", "\u0915\u093C", "\u0915\u093C", "\u0915\u093C"},
        // Assigned after Unicode 9.0: left as it is.
        {"\u32FF", "\u32FF", "\u32FF", "\u32FF", "\u32FF"},
        {"\xFF"
         "e\u0301\xC3",
         "\xFF\u00E9\xC3",
         "\xFF"
         "e\u0301\xC3",
         "\xFF\u00E9\xC3",
         "\xFF"
         "e\u0301\xC3"}};
    for (const Case& each : cases) {
        EXPECT_EQ(form_of(each.text, nfc), each.nfc) << each.text;
        EXPECT_EQ(form_of(each.text, nfd), each.nfd) << each.text;
        EXPECT_EQ(form_of(each.text, nfkc), each.nfkc) << each.text;
        EXPECT_EQ(form_of(each.text, nfkd), each.nfkd) << each.text;
    }
}

TEST(UnicodeNormalize, OfEveryScalarAFormIsOfThatFormAndFormsLeadToEachOther) {
    using enum NormalForm;
    std::size_t composed = 0, compatible = 0;
    for (char32_t c = 0; c < 0x110000; ++c) {
        if (c >= 0xD800 && c < 0xE000) continue;
        std::string text = "a";
        append_utf8(text, c);
        const std::string d = form_of(text, nfd), kd = form_of(text, nfkd);
        ASSERT_EQ(form_of(d, nfd), d);
        ASSERT_EQ(form_of(kd, nfkd), kd);
        const std::string composed_text = form_of(text, nfc);
        ASSERT_EQ(form_of(d, nfc), composed_text) << std::hex << static_cast<std::uint32_t>(c);
        ASSERT_EQ(form_of(composed_text, nfd), d) << std::hex << static_cast<std::uint32_t>(c);
        ASSERT_EQ(form_of(kd, nfkc), form_of(text, nfkc)) << std::hex << static_cast<std::uint32_t>(c);
        composed += d != text ? 1 : 0;
        compatible += kd != d ? 1 : 0;
    }
    // As many as with the library.
    EXPECT_EQ(composed, 13232u);
    EXPECT_EQ(compatible, 3678u);
}

}  // namespace
}  // namespace mantissa
