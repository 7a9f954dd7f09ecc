#include "mantissa/data/chat/letter_case.h"

#include <algorithm>

#include "mantissa/data/unicode.h"

namespace mantissa::inline v0::jinja {

namespace {

Char moved(const Char& c, std::int64_t distance) {
    return {static_cast<char32_t>(static_cast<std::int64_t>(c.code) + distance), c.origin};
}

/// Appends a character's other case; false, without appending, if it is not in the table.
bool append_by(const CaseTable& table, Chars& out, const Char& c) {
    const auto letters = std::ranges::lower_bound(table.letters, c.code, {}, &CaseLetters::code);
    if (letters != table.letters.end() && letters->code == c.code) {
        for (const std::uint32_t code : letters->letters)
            if (code) out.push_back({code, c.origin});
        return true;
    }
    const auto range = std::ranges::lower_bound(table.ranges, c.code, {}, &CaseRange::last);
    if (range == table.ranges.end() || !range->holds(c.code)) return false;
    out.push_back(moved(c, range->distance));
    return true;
}

void append_upper(Chars& out, const Char& c) {
    if (append_by(upper_table(), out, c)) return;
    const auto back = std::ranges::find_if(lower_table().ranges, [&](const CaseRange& range) {
        return range.holds(static_cast<std::int64_t>(c.code) - range.distance);
    });
    out.push_back(back == lower_table().ranges.end() ? c : moved(c, -std::int64_t{back->distance}));
}

bool is_of(char32_t code, CategorySet categories) { return categories >> category_of(code) & 1; }

bool is_cased(char32_t code) {
    static const CategorySet cased = categories_of("Lu") | categories_of("Ll") | categories_of("Lt");
    return is_of(code, cased);
}

bool is_passed_over(char32_t code) {
    static const CategorySet ignorable = categories_of("Mn") | categories_of("Me") | categories_of("Cf") |
                                         categories_of("Lm") | categories_of("Sk");
    static constexpr std::u32string_view marks =
        U"'.:\u00B7\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A";
    return marks.find(code) != marks.npos || is_of(code, ignorable);
}

/// A final sigma has another small letter.
bool ends_word(CharSpan text, std::size_t at) {
    std::size_t before = at;
    while (before > 0 && is_passed_over(text[before - 1].code)) --before;
    if (before == 0 || !is_cased(text[before - 1].code)) return false;
    std::size_t behind = at + 1;
    while (behind < text.size() && is_passed_over(text[behind].code)) ++behind;
    return behind == text.size() || !is_cased(text[behind].code);
}

void append_lower(Chars& out, CharSpan text, std::size_t at) {
    if (text[at].code == U'\u03A3')
        out.push_back({ends_word(text, at) ? U'\u03C2' : U'\u03C3', text[at].origin});
    else if (!append_by(lower_table(), out, text[at]))
        out.push_back(text[at]);
}

bool all_in_case(CharSpan text, std::string_view category) {
    const CategorySet wanted = categories_of(category);
    bool any = false;
    for (const Char& c : text) {
        if (is_of(c.code, wanted))
            any = true;
        else if (is_cased(c.code))
            return false;
    }
    return any;
}

}  // namespace

Chars to_upper(CharSpan text) {
    Chars out;
    for (const Char& c : text) append_upper(out, c);
    return out;
}

Chars to_lower(CharSpan text) {
    Chars out;
    for (std::size_t at = 0; at < text.size(); ++at) append_lower(out, text, at);
    return out;
}

Chars to_capitalized(CharSpan text) {
    Chars out;
    if (!text.empty() && !append_by(title_table(), out, text[0])) append_upper(out, text[0]);
    for (std::size_t at = 1; at < text.size(); ++at) append_lower(out, text, at);
    return out;
}

bool all_upper(CharSpan text) { return all_in_case(text, "Lu"); }
bool all_lower(CharSpan text) { return all_in_case(text, "Ll"); }

}  // namespace mantissa::inline v0::jinja
