// Upper and lower case as in Python's str, for all of Unicode. Internal to data/chat.
#pragma once

#include <cstdint>
#include <span>

#include "mantissa/data/chat/template_value.h"

namespace mantissa::inline v0::jinja {

/// Every `step`-th code point of first ... last moves by `distance` in this case.
struct CaseRange {
    std::uint32_t first, last, step;
    std::int32_t distance;

    bool holds(std::int64_t code) const {
        return code >= first && code <= last && (code - first) % step == 0;
    }
};
/// A code point that becomes up to three others; 0 pads.
struct CaseLetters {
    std::uint32_t code, letters[3];
};
struct CaseTable {
    std::span<const CaseRange> ranges;
    std::span<const CaseLetters> letters;
};
const CaseTable& lower_table();
/// Exceptions where upper case is not the inverse of lower case.
const CaseTable& upper_table();
/// Exceptions where title case is not upper case.
const CaseTable& title_table();

Chars to_upper(CharSpan text);
Chars to_lower(CharSpan text);
/// The first character in title case, the others in lower case.
Chars to_capitalized(CharSpan text);
/// As Python's str.isupper and str.islower.
bool all_upper(CharSpan text);
bool all_lower(CharSpan text);

}  // namespace mantissa::inline v0::jinja
