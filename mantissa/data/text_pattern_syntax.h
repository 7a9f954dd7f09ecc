// The syntax of text_pattern.h's expressions, as a tree. Internal to data/text_pattern*.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/base/expected.h"
#include "mantissa/data/text_pattern.h"
#include "mantissa/data/unicode.h"

namespace mantissa::inline v0 {

/// ASCII characters one by one; others by category, or by ranges of code points.
struct CharacterSet {
    std::array<bool, 128> ascii{};
    CategorySet categories = 0;
    std::vector<std::pair<char32_t, char32_t>> ranges = {};
    bool all_but_these = false;  // among characters beyond ASCII

    bool holds_beyond_ascii(char32_t code_point, unsigned category) const {
        bool there = (categories >> category & 1) != 0;
        for (const auto& [first, last] : ranges) there |= code_point >= first && code_point <= last;
        return there != all_but_these;
    }
    /// Whether some character of that class may be in the set.
    bool may_hold(CharacterClass kind) const;
};

struct PatternItem;
using PatternSequence = std::vector<PatternItem>;
using PatternChoices = std::vector<PatternSequence>;

struct PatternItem {
    static constexpr std::uint32_t unlimited = std::numeric_limits<std::uint32_t>::max();
    enum class Kind : std::uint8_t {
        set,
        group,    ///< repeated once, up to `max` or without limit; if `min` is 0, optional
        ahead,    ///< lookahead; if `negative`, it must fail
        line_end  ///< the text's end, or the end of a line follows
    };
    Kind kind = Kind::set;
    bool negative = false;
    bool possessive = false;  ///< never gives back taken characters
    std::uint32_t min = 1, max = 1;
    CharacterSet set = {};
    PatternChoices choices = {};
};

Expected<PatternChoices> parse_pattern(std::string_view expression, Spaces spaces);

}  // namespace mantissa
