#include "mantissa/data/unicode.h"

#include <algorithm>
#include <array>

namespace mantissa::inline v0 {

namespace {

constexpr std::array<CharacterClass, 128> make_ascii_classes() {
    std::array<CharacterClass, 128> classes{};
    for (unsigned c = 0; c < classes.size(); ++c) {
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) classes[c] = CharacterClass::letter;
        if (c >= '0' && c <= '9') classes[c] = CharacterClass::number;
        if (c == ' ' || (c >= '\t' && c <= '\r')) classes[c] = CharacterClass::space;
    }
    return classes;
}

/// The range lookup costs a binary search; most text is ASCII.
constexpr auto ascii_classes = make_ascii_classes();

/// The promise of a lead byte: the bytes that follow it, and the range of the first of them, which is what
/// shuts out overlong forms, surrogates and values above U+10FFFF (Unicode 16.0, table 3-7).
struct Lead {
    unsigned following;
    unsigned char first_low, first_high;
};

Lead lead_of(unsigned char byte) {
    if (byte >= 0xC2 && byte <= 0xDF) return {1, 0x80, 0xBF};
    if (byte == 0xE0) return {2, 0xA0, 0xBF};
    if (byte == 0xED) return {2, 0x80, 0x9F};
    if (byte >= 0xE1 && byte <= 0xEF) return {2, 0x80, 0xBF};
    if (byte == 0xF0) return {3, 0x90, 0xBF};
    if (byte >= 0xF1 && byte <= 0xF3) return {3, 0x80, 0xBF};
    if (byte == 0xF4) return {3, 0x80, 0x8F};
    return {0, 0, 0};
}

}  // namespace

CharacterClass character_class(char32_t code_point) {
    if (code_point < ascii_classes.size()) return ascii_classes[code_point];
    if (code_point > 0x10FFFF) return CharacterClass::other;
    const auto starts = unicode_class_starts();
    // The last range that starts at or before the code point.
    const auto after = std::upper_bound(starts.begin(), starts.end(), (code_point << 2) | 3U);
    return static_cast<CharacterClass>(*(after - 1) & 3U);
}

Utf8Step decode_utf8(std::string_view text, std::size_t at) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char first = byte(at);
    if (first < 0x80) return {first, 1, false};
    const Lead lead = lead_of(first);
    if (lead.following == 0) return {Utf8Step::invalid, 1, false};
    char32_t code_point = first & (0x3FU >> lead.following);
    for (std::size_t i = 1; i <= lead.following; ++i) {
        if (at + i == text.size()) return {Utf8Step::invalid, i, true};
        const unsigned char next = byte(at + i);
        const unsigned char low = i == 1 ? lead.first_low : 0x80;
        const unsigned char high = i == 1 ? lead.first_high : 0xBF;
        if (next < low || next > high) return {Utf8Step::invalid, i, false};
        code_point = (code_point << 6) | (next & 0x3FU);
    }
    return {code_point, lead.following + 1U, false};
}

CharacterClass class_before(std::string_view text, std::size_t end) {
    // A lead byte is never a continuation byte, so a valid sequence that ends here is also what a decoder
    // that came from the front would have found.
    for (std::size_t length = 1; length <= std::min<std::size_t>(4, end); ++length) {
        const Utf8Step step = decode_utf8(text.substr(0, end), end - length);
        if (step.code_point != Utf8Step::invalid && step.length == length)
            return character_class(step.code_point);
    }
    return CharacterClass::other;
}

}  // namespace mantissa
