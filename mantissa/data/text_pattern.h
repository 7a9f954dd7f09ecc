// Regular expressions, as far as tokenizer.json files cut and change text with them: characters and classes
// of them, one or a number of each, choices, groups, and what must or must not follow. They find what
// Oniguruma finds, whose syntax they have: the leftmost match, by the first choice that leads to one. Other
// syntax is refused by name. What is not UTF-8 counts as code points that are not assigned, one for each part
// (decode_utf8).
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

/// The meaning of a space in a text to a pattern: itself, or U+2581, of which it has taken the place.
enum class Spaces : std::uint8_t { plain, visible };

class TextPattern {
  public:
    /// The reason names what of the expression is not understood. One that may match nothing is refused.
    static Expected<TextPattern> of_expression(std::string_view expression, Spaces spaces = Spaces::plain);
    static TextPattern of_text(std::string_view literal, Spaces spaces = Spaces::plain);

    struct Match {
        std::size_t begin, end;
    };
    /// The first match at or behind `from`; empty, at the text's end, if there is none. No other is empty.
    Match find(std::string_view text, std::size_t from) const {
        for (std::size_t at = automaton_->next_start(text, from); at < text.size();) {
            const std::size_t end = automaton_->match_end(text, at);
            if (end != PatternAutomaton::none) return {at, end};
            at = automaton_->next_start(text, at + decode_utf8(text, at).length);
        }
        return {text.size(), text.size()};
    }

    /// Whether a match may hold a character of class `before` and the ASCII character `after` beside each
    /// other, or depend on `after` otherwise than on the text's end. Errs on the side of yes.
    bool may_span(CharacterClass before, char after) const;
    /// Whether every place in a text with this ASCII character is in some match. Errs on the side of no.
    bool always_takes(char character) const;

    const std::string& expression() const;
    bool operator==(const TextPattern& other) const;

  private:
    struct Program;
    explicit TextPattern(std::shared_ptr<const Program> program);
    std::shared_ptr<const Program> program_;
    const PatternAutomaton* automaton_;  // the program's
};

/// GPT-2's, by which a text is cut into words (openai/gpt-2, src/encoder.py).
inline constexpr std::string_view gpt2_expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const TextPattern& gpt2_pattern();

}  // namespace mantissa
