#include "mantissa/data/unicode.h"

#include <algorithm>
#include <map>

namespace mantissa::inline v0 {

namespace {

constexpr std::size_t code_points = 0x110000;

/// The properties of a lead byte: the number of bytes that follow, and the range of the first one, which
/// excludes overlong forms, surrogates and values above U+10FFFF (Unicode 16.0, table 3-7).
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

template <class Value>
CodePointTable<Value>::CodePointTable(const std::vector<Value>& of_all) {
    std::map<std::string, std::uint32_t> known;  // blocks, by their bytes
    for (std::size_t first = 0; first < of_all.size(); first += 256) {
        const auto begin = of_all.begin() + static_cast<std::ptrdiff_t>(first);
        const std::string bytes(reinterpret_cast<const char*>(&*begin), 256 * sizeof(Value));
        const auto [found, fresh] = known.emplace(bytes, static_cast<std::uint32_t>(values_.size()));
        if (fresh) values_.insert(values_.end(), begin, begin + 256);
        blocks_.push_back(found->second);
    }
}

template class CodePointTable<std::uint8_t>;
template class CodePointTable<std::uint16_t>;

CategorySet categories_of(std::string_view name) {
    CategorySet set = 0;
    for (std::size_t i = 0; 2 * i < category_names.size(); ++i)
        if (category_names.substr(2 * i, 2).starts_with(name)) set |= CategorySet{1} << i;
    if (name == "Cc") set |= categories_of("Cw");
    return name == "Cw" ? CategorySet{1} << (category_names.size() / 2 - 1) : set;
}

unsigned category_of(char32_t code_point) {
    static const CodePointTable<std::uint8_t> table = [] {
        std::vector<std::uint8_t> of_all(code_points);
        const auto starts = unicode_category_starts();
        for (std::size_t i = 0; i < starts.size(); ++i) {
            const std::size_t end = i + 1 < starts.size() ? starts[i + 1] >> 5 : code_points;
            std::fill(of_all.begin() + (starts[i] >> 5), of_all.begin() + end,
                      static_cast<std::uint8_t>(starts[i] & 31U));
        }
        return CodePointTable(of_all);
    }();
    static const unsigned unassigned = static_cast<unsigned>(category_names.find("Cn")) / 2;
    return code_point < code_points ? table[code_point] : unassigned;
}

CharacterClass character_class_beyond_ascii(char32_t code_point) {
    static const CategorySet letters = categories_of("L"), numbers = categories_of("N"),
                             spaces = categories_of("Z") | categories_of("Cw");
    const CategorySet category = CategorySet{1} << category_of(code_point);
    if ((category & letters) != 0) return CharacterClass::letter;
    if ((category & numbers) != 0) return CharacterClass::number;
    return (category & spaces) != 0 ? CharacterClass::space : CharacterClass::other;
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

std::size_t character_before(std::string_view text, std::size_t end) {
    // A lead byte is never a continuation byte, so decoding from the front finds the same sequence as this
    // one that ends here.
    for (std::size_t length = 2; length <= std::min<std::size_t>(4, end); ++length) {
        const Utf8Step step = decode_utf8(text.substr(0, end), end - length);
        if (step.code_point != Utf8Step::invalid && step.length == length) return end - length;
    }
    return end - 1;
}

void append_utf8(std::string& text, char32_t c) {
    const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
    if (c < 0x80) return put(c);
    if (c < 0x800) {
        put(0xC0 | c >> 6);
    } else {
        if (c < 0x10000) {
            put(0xE0 | c >> 12);
        } else {
            put(0xF0 | c >> 18);
            put(0x80 | (c >> 12 & 0x3F));
        }
        put(0x80 | (c >> 6 & 0x3F));
    }
    put(0x80 | (c & 0x3F));
}

}  // namespace mantissa
