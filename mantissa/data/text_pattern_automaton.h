// A deterministic automaton for text_pattern.h's expressions: one table look-up per ASCII character, and one
// by class for others. Made once for an expression, it reads a text without going back. Part of
// text_pattern.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "mantissa/base/expected.h"
#include "mantissa/data/unicode.h"

namespace mantissa::inline v0 {

struct PatternItem;  // text_pattern_syntax.h

class PatternAutomaton {
  public:
    static constexpr std::size_t none = std::string_view::npos;

    /// Follows the choices in order, as a backtracking search would. The error names the unsupported part.
    static Expected<PatternAutomaton> of_syntax(const std::vector<std::vector<PatternItem>>& choices);

    /// The end of the match that begins at `begin`, or `none`.
    std::size_t match_end(std::string_view text, std::size_t begin) const {
        std::size_t at = begin, end = none;
        for (Entry state = start;;) {
            const Entry* const row = &by_byte_[static_cast<std::size_t>(state >> 1) << 8];
            Entry next = state;
            while (at < text.size() && (next = row[static_cast<unsigned char>(text[at])]) == state) ++at;
            if (at == text.size()) return at_end_[state >> 1] ? at : end;
            std::size_t length = 1;
            if (next == beyond_ascii) {
                const Utf8Step step = decode_utf8(text, at);
                length = step.length;
                next = by_class_[(state >> 1) * classes_ + class_of(step.code_point)];
            }
            if ((next & matched) != 0) end = at;
            if (next <= matched) return end;
            state = static_cast<Entry>(next & ~matched);
            at += length;
        }
    }
    /// The first place from `at` on where a match may begin; the text's end if there is none.
    std::size_t next_start(std::string_view text, std::size_t at) const {
        const Entry* const row = &by_byte_[static_cast<std::size_t>(start >> 1) << 8];
        while (at < text.size() && row[static_cast<unsigned char>(text[at])] == 0) ++at;
        return at;
    }

  private:
    friend class AutomatonBuilder;

    /// Twice a state, plus `matched` if a match ends before the character: it is kept in case the preferred
    /// longer match fails. State 0 ends the search.
    using Entry = std::uint16_t;
    static constexpr Entry matched = 1, start = 2, beyond_ascii = 0xFFFF;

    std::size_t class_of(char32_t code_point) const {
        const auto behind = std::upper_bound(segments_.begin(), segments_.end(), code_point);
        const auto segment = static_cast<std::size_t>(behind - segments_.begin());
        return class_of_category_[segment << 5 | category_of(code_point)];
    }

    std::vector<Entry> by_byte_;   // [state, 256]; beyond_ascii: see by_class_
    std::vector<Entry> by_class_;  // [state, class]
    std::vector<bool> at_end_;     // whether a match ends at the end of the text
    std::size_t classes_ = 0;
    /// Borders of ranges in the expression's sets: code points of one category between two borders are one
    /// class.
    std::vector<char32_t> segments_;
    std::vector<std::uint16_t> class_of_category_;  // [segment, 32]
};

}  // namespace mantissa
