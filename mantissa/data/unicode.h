// The tokenizer's Unicode: UTF-8 decoding that never fails, and whether a code point is a letter, a number or
// white space. The tables are our own, so that the answer depends on no library's version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace mantissa::inline v0 {

/// letter: general category L*; number: N*; space: property White_Space; other: everything else, code points
/// that are not assigned and invalid UTF-8 included.
enum class CharacterClass : std::uint8_t { other, letter, number, space };

/// 4 * first code point + class of each maximal range of one class, in order, from code point 0 on.
std::span<const std::uint32_t> unicode_class_starts();

CharacterClass character_class(char32_t code_point);

/// One step through UTF-8 text.
struct Utf8Step {
    static constexpr char32_t invalid = 0xFFFFFFFF;

    char32_t code_point;  ///< `invalid` where the bytes are not UTF-8
    std::size_t length;   ///< bytes taken, at least 1
    bool cut_short;       ///< invalid only because the text ends before the sequence does
};

/// The code point that begins at `at` < text.size(). Where there is none, takes the longest prefix of a valid
/// sequence, else one byte (Unicode 16.0, section 3.9, "maximal subpart"). So each replaced part becomes one
/// U+FFFD, as in Python's decoder. Overlong forms, surrogates and values above U+10FFFF are invalid.
Utf8Step decode_utf8(std::string_view text, std::size_t at);

/// The class of what ends just before `end` > 0: of the code point there, or other where it is invalid.
CharacterClass class_before(std::string_view text, std::size_t end);

}  // namespace mantissa
