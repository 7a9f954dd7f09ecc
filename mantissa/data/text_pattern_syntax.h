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

/// ASCII characters one by one; others by their category, or by ranges of code points.
struct CharacterSet {
    std::array<bool, 128> ascii{};
    CategorySet categories = 0;
    std::vector<std::pair<char32_t, char32_t>> ranges = {};
    bool all_but_these = false;  // of those beyond ASCII

    bool holds_beyond_ascii(char32_t code_point) const {
        bool there = (categories >> category_of(code_point) & 1) != 0;
        for (const auto& [first, last] : ranges) there |= code_point >= first && code_point <= last;
        return there != all_but_these;
    }
    bool holds(char32_t code_point) const {
        return code_point < ascii.size() ? ascii[code_point] : holds_beyond_ascii(code_point);
    }
    /// Whether some character beyond ASCII may be in it.
    bool reaches_beyond_ascii() const { return categories != 0 || !ranges.empty() || all_but_these; }
    /// Whether some character may be in both.
    bool may_share(const CharacterSet& other) const;
    /// Whether some character of that class may be in it.
    bool may_hold(CharacterClass kind) const;
};

struct PatternItem;
using PatternSequence = std::vector<PatternItem>;
using PatternChoices = std::vector<PatternSequence>;

struct PatternItem {
    static constexpr std::uint32_t unlimited = std::numeric_limits<std::uint32_t>::max();
    enum class Kind : std::uint8_t {
        set,
        group,    ///< once, or, if `min` is 0, not at all
        ahead,    ///< what must follow, or, if `negative`, must not
        line_end  ///< the text's end, or the end of a line follows
    };
    Kind kind = Kind::set;
    bool negative = false;
    bool possessive = false;  ///< gives nothing back of what it took
    std::uint32_t min = 1, max = 1;
    CharacterSet set = {};
    PatternChoices choices = {};
};

Expected<PatternChoices> parse_pattern(std::string_view expression, Spaces spaces);

/// Whether a match of the sequence may begin with this byte. Errs on the side of yes.
bool may_begin(const PatternSequence& sequence, unsigned char byte);

}  // namespace mantissa
