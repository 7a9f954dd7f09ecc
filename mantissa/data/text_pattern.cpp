#include "mantissa/data/text_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <optional>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/data/text_pattern_syntax.h"

namespace mantissa::inline v0 {

namespace {

constexpr std::size_t none = std::string_view::npos;

/// One item to match at some place, then those behind it.
struct Node {
    enum class Kind : std::uint8_t { end, set, choice, ahead, line_end };
    Kind kind = Kind::end;
    bool negative = false;   // of `ahead`
    bool gives_back = true;  // of `set`: fewer characters, should what follows not match
    std::uint32_t min = 1, max = 1;
    const CharacterSet* set = nullptr;
    std::size_t next = 0;
    std::vector<std::size_t> choices = {};  // each goes on behind the group; of `ahead` one, which ends
};

}  // namespace

struct TextPattern::Program {
    std::string expression;
    Spaces spaces = Spaces::plain;
    PatternChoices syntax;    // owns the sets
    std::vector<Node> nodes;  // 0 is the end
    std::vector<std::size_t> branches;
    /// Bit i of a byte: branch i may begin with it.
    std::array<std::uint32_t, 256> starts{};
    std::optional<char> only_start;  // if all matches begin with this one

    std::size_t match(std::size_t node, std::string_view text, std::size_t at) const;
    std::size_t match_set(const Node& node, std::string_view text, std::size_t at) const;

    std::size_t compile(const PatternSequence& sequence, std::size_t next) {
        for (auto item = sequence.rbegin(); item != sequence.rend(); ++item) next = compile(*item, next);
        return next;
    }
    std::size_t compile(const PatternItem& item, std::size_t next) {
        Node node{.negative = item.negative,
                  .gives_back = !item.possessive,
                  .min = item.min,
                  .max = item.max,
                  .set = &item.set,
                  .next = next};
        switch (item.kind) {
            case PatternItem::Kind::set:
                node.kind = Node::Kind::set;
                break;
            case PatternItem::Kind::line_end:
                node.kind = Node::Kind::line_end;
                break;
            case PatternItem::Kind::ahead:
            case PatternItem::Kind::group:
                node.kind = item.kind == PatternItem::Kind::group ? Node::Kind::choice : Node::Kind::ahead;
                for (const PatternSequence& sequence : item.choices)
                    node.choices.push_back(compile(sequence, node.kind == Node::Kind::choice ? next : 0));
                if (item.min == 0) node.choices.push_back(next);
                break;
        }
        nodes.push_back(std::move(node));
        return nodes.size() - 1;
    }

    void finish() {
        nodes.emplace_back();
        constexpr std::size_t most = 32;
        if (syntax.size() > most) {
            PatternItem all{.kind = PatternItem::Kind::group};
            all.choices = std::move(syntax);
            syntax = {{std::move(all)}};
        }
        for (std::size_t i = 0; i < syntax.size(); ++i) {
            branches.push_back(compile(syntax[i], 0));
            for (unsigned byte = 0; byte < 256; ++byte)
                if (may_begin(syntax[i], static_cast<unsigned char>(byte))) starts[byte] |= 1U << i;
        }
        const auto begins = [](std::uint32_t bits) { return bits != 0; };
        if (std::ranges::count_if(starts, begins) == 1) {
            const auto byte = std::ranges::find_if(starts, begins) - starts.begin();
            if (byte < 0x80) only_start = static_cast<char>(byte);
        }
    }
};

std::size_t TextPattern::Program::match_set(const Node& node, std::string_view text, std::size_t at) const {
    const CharacterSet& set = *node.set;
    std::size_t least = node.min == 0 ? at : none;
    std::uint32_t count = 0;
    while (at < text.size() && count < node.max) {
        const auto byte = static_cast<unsigned char>(text[at]);
        if (byte < 0x80) {
            if (!set.ascii[byte]) break;
            ++at;
        } else {
            const Utf8Step step = decode_utf8(text, at);
            if (!set.holds_beyond_ascii(step.code_point)) break;
            at += step.length;
        }
        if (++count == node.min) least = at;
    }
    if (least == none) return none;
    if (node.next == 0) return at;
    for (;;) {
        const std::size_t end = match(node.next, text, at);
        if (end != none || at == least || !node.gives_back) return end;
        at = character_before(text, at);
    }
}

std::size_t TextPattern::Program::match(std::size_t index, std::string_view text, std::size_t at) const {
    for (;;) {
        const Node& node = nodes[index];
        switch (node.kind) {
            case Node::Kind::end:
                return at;
            case Node::Kind::set:
                return match_set(node, text, at);
            case Node::Kind::choice:
                for (const std::size_t choice : node.choices)
                    if (const std::size_t end = match(choice, text, at); end != none) return end;
                return none;
            case Node::Kind::ahead: {
                const bool there = std::ranges::any_of(
                    node.choices, [&](std::size_t choice) { return match(choice, text, at) != none; });
                if (there == node.negative) return none;
                break;
            }
            case Node::Kind::line_end:
                if (at < text.size() && text[at] != '\n') return none;
                break;
        }
        index = node.next;
    }
}

TextPattern::Match TextPattern::find(std::string_view text, std::size_t from) const {
    const Program& program = *program_;
    for (std::size_t at = from; at < text.size();) {
        if (program.only_start) {
            at = text.find(*program.only_start, at);
            if (at == none) break;
        }
        const auto byte = static_cast<unsigned char>(text[at]);
        for (std::uint32_t left = program.starts[byte]; left != 0; left &= left - 1) {
            const std::size_t branch = program.branches[static_cast<std::size_t>(std::countr_zero(left))];
            if (const std::size_t end = program.match(branch, text, at); end != none) return {at, end};
        }
        at += byte < 0x80 ? 1 : decode_utf8(text, at).length;
    }
    return {text.size(), text.size()};
}

const std::string& TextPattern::expression() const { return program_->expression; }

bool TextPattern::operator==(const TextPattern& other) const {
    return program_->expression == other.program_->expression && program_->spaces == other.program_->spaces;
}

namespace {

/// A walk through an expression: whether a match may hold one place between two characters.
class PlaceBetween {
  public:
    PlaceBetween(CharacterClass before, char after) : before_(before), after_(after) {}

    bool may_be_spanned(const PatternChoices& choices) {
        for (const PatternSequence& sequence : choices) walk(sequence, false);
        return spanned_;
    }

  private:
    /// Whether the sequence may leave us behind a `before`, given that it may begin there.
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
                // The text's end passes where something must not follow, and so must `after_`.
                const bool plain = item.negative && item.choices.size() == 1 && item.choices[0].size() == 1 &&
                                   item.choices[0][0].kind == PatternItem::Kind::set &&
                                   item.choices[0][0].min == 1;
                spanned_ |= !plain || item.choices[0][0].set.ascii[static_cast<unsigned char>(after_)];
                return behind;
            }
            case PatternItem::Kind::group: {
                bool left = item.min == 0 && behind;
                for (const PatternSequence& sequence : item.choices) left |= walk(sequence, behind);
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
    // Some choice takes it alone, whatever stands around it.
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
    auto program = std::make_shared<Program>();
    program->expression = expression;
    program->spaces = spaces;
    auto syntax = parse_pattern(expression, spaces);
    if (!syntax) return Unexpected{syntax.reason()};
    program->syntax = std::move(*syntax);
    program->finish();
    return TextPattern(std::move(program));
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
