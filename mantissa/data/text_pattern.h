// Regular expressions, as far as tokenizer.json files use them to cut and change text: characters and
// classes, repetitions, choices, groups, and lookahead. Matches are Oniguruma's, with its syntax: the
// leftmost match, by the first choice that leads to one. Other syntax is refused by name. Invalid UTF-8
// counts as unassigned code points, one for each part (decode_utf8).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "mantissa/base/expected.h"
#include "mantissa/data/text_pattern_automaton.h"
#include "mantissa/data/unicode.h"

namespace mantissa::inline v0 {

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
