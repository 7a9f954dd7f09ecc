#include "mantissa/data/text_pattern.h"

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/data/text_pattern_syntax.h"

namespace mantissa::inline v0 {

struct TextPattern::Program {
    std::string expression;
    Spaces spaces;
    PatternChoices syntax;
    PatternAutomaton automaton;
};

TextPattern::TextPattern(std::shared_ptr<const Program> program)
    : program_(std::move(program)), automaton_(&program_->automaton) {}

const std::string& TextPattern::expression() const { return program_->expression; }

bool TextPattern::operator==(const TextPattern& other) const {
    return program_->expression == other.program_->expression && program_->spaces == other.program_->spaces;
}

namespace {

/// A walk through an expression: whether a match may span one place between two characters.
class PlaceBetween {
  public:
    PlaceBetween(CharacterClass before, char after) : before_(before), after_(after) {}

    bool may_be_spanned(const PatternChoices& choices) {
        for (const PatternSequence& sequence : choices) walk(sequence, false);
        return spanned_;
    }

  private:
    /// Whether the sequence may end right after a `before`, if it may begin there (`behind`).
    bool walk(const PatternSequence& sequence, bool behind) {
        for (const PatternItem& item : sequence) behind = walk(item, behind);
        return behind;
    }
    bool walk(const PatternItem& item, bool behind) {
        switch (item.kind) {
            case PatternItem::Kind::line_end:
                spanned_ |= after_ != '\n';
                return behind;
            case PatternItem::Kind::ahead: {
                // The text's end passes a negative lookahead, and `after_` must pass it, too.
                const bool plain = item.negative && item.choices.size() == 1 && item.choices[0].size() == 1 &&
                                   item.choices[0][0].kind == PatternItem::Kind::set &&
                                   item.choices[0][0].min == 1;
                spanned_ |= !plain || item.choices[0][0].set.ascii[static_cast<unsigned char>(after_)];
                return behind;
            }
            case PatternItem::Kind::group: {
                bool left = item.min == 0 && behind;
                for (const PatternSequence& sequence : item.choices) left |= walk(sequence, behind);
                // A repetition may continue there.
                if (item.max > 1 && left && !behind) return walk(item, true);
                return left;
            }
            case PatternItem::Kind::set:
                break;
        }
        const bool takes_before = item.set.may_hold(before_);
        const bool takes_after = item.set.ascii[static_cast<unsigned char>(after_)];
        spanned_ |= takes_after && (behind || (takes_before && item.max > 1));
        return takes_before || (item.min == 0 && behind);
    }

    CharacterClass before_;
    char after_;
    bool spanned_ = false;
};

}  // namespace

bool TextPattern::may_span(CharacterClass before, char after) const {
    return PlaceBetween(before, after).may_be_spanned(program_->syntax);
}

bool TextPattern::always_takes(char character) const {
    // A choice takes the character alone, in any context.
    return std::ranges::any_of(program_->syntax, [&](const PatternSequence& sequence) {
        int needed = 0;
        for (const PatternItem& item : sequence) {
            if (item.kind == PatternItem::Kind::ahead || item.kind == PatternItem::Kind::line_end)
                return false;
            if (item.min == 0) continue;
            const bool takes = item.kind == PatternItem::Kind::set && item.min == 1 && !item.possessive &&
                               item.set.ascii[static_cast<unsigned char>(character)];
            if (!takes || ++needed > 1) return false;
        }
        return needed == 1;
    });
}

Expected<TextPattern> TextPattern::of_expression(std::string_view expression, Spaces spaces) {
    auto syntax = parse_pattern(expression, spaces);
    if (!syntax) return Unexpected{syntax.reason()};
    auto automaton = PatternAutomaton::of_syntax(*syntax);
    if (!automaton) return Unexpected{automaton.reason()};
    return TextPattern(std::make_shared<const Program>(
        Program{std::string(expression), spaces, std::move(*syntax), std::move(*automaton)}));
}

TextPattern TextPattern::of_text(std::string_view literal, Spaces spaces) {
    std::string expression;
    for (const char c : literal) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x80 && character_class(byte) == CharacterClass::other) expression += '\\';
        expression += c;
    }
    auto pattern = of_expression(expression, spaces);
    check(static_cast<bool>(pattern), "a text that is not empty is a pattern");
    return std::move(*pattern);
}

const TextPattern& gpt2_pattern() {
    static const TextPattern pattern = *TextPattern::of_expression(gpt2_expression);
    return pattern;
}

}  // namespace mantissa
