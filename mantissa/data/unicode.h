// Unicode for tokenizers: UTF-8 decoding that never fails, general categories of code points, and normal
// forms (UAX #15) of Unicode 9.0, as in Hugging Face's tokenizers. The tables are our own, made by
// scripts/make_unicode_tables.py, so that results depend on no library's version.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::inline v0 {

/// Ranges of one category; see unicode_tables.cpp. A category is an index into category_names.
std::span<const std::uint32_t> unicode_categories();

/// The general categories, two letters each. The last one is ours, for control characters that are white
/// space, so that White_Space is a union of categories.
inline constexpr std::string_view category_names =
    "LuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCoCnCw";

/// A set of categories, as bits. Invalid UTF-8 has category Cn.
using CategorySet = std::uint32_t;

/// The categories with names that begin with `name`, "L" or "Lu"; may be empty. White-space controls belong
/// to "Cc", too.
CategorySet categories_of(std::string_view name);

/// The index of a code point's category; above U+10FFFF, of Cn.
unsigned category_of(char32_t code_point);

/// letter: general category L*; number: N*; space: property White_Space; other: everything else, unassigned
/// code points and invalid UTF-8 included.
enum class CharacterClass : std::uint8_t { other, letter, number, space };

constexpr std::array<CharacterClass, 128> make_ascii_classes() {
    std::array<CharacterClass, 128> classes{};
    for (unsigned c = 0; c < classes.size(); ++c) {
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) classes[c] = CharacterClass::letter;
        if (c >= '0' && c <= '9') classes[c] = CharacterClass::number;
        if (c == ' ' || (c >= '\t' && c <= '\r')) classes[c] = CharacterClass::space;
    }
    return classes;
}

/// Most text is ASCII.
inline constexpr auto ascii_classes = make_ascii_classes();

CharacterClass character_class_beyond_ascii(char32_t code_point);
inline CharacterClass character_class(char32_t code_point) {
    return code_point < ascii_classes.size() ? ascii_classes[code_point]
                                             : character_class_beyond_ascii(code_point);
}

/// A value for each code point; equal blocks of 256 are stored once.
template <class Value>
class CodePointTable {
  public:
    CodePointTable() = default;
    /// `of_all` has a value for each of the 0x110000 code points.
    explicit CodePointTable(const std::vector<Value>& of_all);

    Value operator[](char32_t code_point) const {
        return values_[blocks_[code_point >> 8] + (code_point & 0xFF)];
    }

  private:
    std::vector<std::uint32_t> blocks_;
    std::vector<Value> values_;
};

/// A step through UTF-8 text.
struct Utf8Step {
    static constexpr char32_t invalid = 0xFFFFFFFF;

    char32_t code_point;  ///< `invalid` where the bytes are not UTF-8
    std::size_t length;   ///< bytes taken, at least 1
    bool cut_short;       ///< invalid only because the text ends before the sequence does
};

/// The code point at `at` < text.size(). If it is invalid, takes the longest prefix of a valid sequence, else
/// one byte (Unicode 16.0, section 3.9, "maximal subpart"); each such part becomes one U+FFFD, as in Python's
/// decoder. Overlong forms, surrogates and values above U+10FFFF are invalid.
Utf8Step decode_utf8(std::string_view text, std::size_t at);

/// The beginning of the character that ends before `end` > 0: a code point, or an invalid byte.
std::size_t character_before(std::string_view text, std::size_t end);

/// Appends a code point as UTF-8.
void append_utf8(std::string& text, char32_t code_point);

enum class NormalForm : std::uint8_t { nfc, nfd, nfkc, nfkd };

/// Writes the normalized text to `normal`; if already normal, returns false and leaves `normal` untouched.
/// Invalid UTF-8 stays unchanged. Time is O(n) in the text, except for long rows of combining marks.
bool normalize_unicode(std::string_view text, NormalForm form, std::string& normal);

/// Tables; see unicode_decompositions.cpp.
std::span<const std::uint32_t> unicode_decompositions();
std::span<const std::uint32_t> unicode_combining_classes();

}  // namespace mantissa
