// Regular expressions, as far as tokenizer.json files use them to cut and change text: characters and
// classes, repetitions, choices, groups, and lookahead. Matches are Oniguruma's, with its syntax: the
// leftmost match, by the first choice that leads to one. Other syntax is refused by name. Invalid UTF-8
// counts as unassigned code points, one for each part (decode_utf8).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/base/expected.h"
#include "mantissa/data/unicode.h"

namespace mantissa::inline v0 {

struct PatternItem;  // text_pattern_syntax.h

/// A deterministic automaton: one table look-up per ASCII character, and one by class for others. Made once
/// for an expression, it reads a text without going back.
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

/// The meaning of a space in a text: itself, or U+2581, which it replaced.
enum class Spaces : std::uint8_t { plain, visible };

class TextPattern {
  public:
    /// The error names the unsupported part. An expression that may match nothing is refused.
    static Expected<TextPattern> of_expression(std::string_view expression, Spaces spaces = Spaces::plain);
    static TextPattern of_text(std::string_view literal, Spaces spaces = Spaces::plain);

    struct Match {
        std::size_t begin, end;
    };
    /// The first match at or after `from`; none: empty, at the text's end. No other match is empty.
    Match find(std::string_view text, std::size_t from) const {
        for (std::size_t at = automaton_->next_start(text, from); at < text.size();) {
            const std::size_t end = automaton_->match_end(text, at);
            if (end != PatternAutomaton::none) return {at, end};
            at = automaton_->next_start(text, at + decode_utf8(text, at).length);
        }
        return {text.size(), text.size()};
    }

    /// Whether a match may hold a character of class `before` directly followed by the ASCII character
    /// `after`, or may depend on `after` other than on the text's end. Errs on the side of yes.
    bool may_span(CharacterClass before, char after) const;
    /// Whether a match always covers this ASCII character, wherever it occurs. Errs on the side of no.
    bool always_takes(char character) const;

    const std::string& expression() const;
    bool operator==(const TextPattern& other) const;

  private:
    struct Program;
    explicit TextPattern(std::shared_ptr<const Program> program);
    std::shared_ptr<const Program> program_;
    const PatternAutomaton* automaton_;  // the program's
};

/// GPT-2's expression for words (openai/gpt-2, src/encoder.py).
inline constexpr std::string_view gpt2_expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const TextPattern& gpt2_pattern();

}  // namespace mantissa
