#include "mantissa/data/text_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <optional>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/data/text_pattern_known.h"
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

/// A branch that gives nothing back and looks nowhere, as most of GPT-2's: its sets one after the other.
struct Step {
    enum class Kind : std::uint8_t { at_most_one, some, any, counted };
    Kind kind;
    const bool* ascii;
    const Node* node;
};

/// Bytes of the character at `at` if it is in the set, else 0.
inline std::size_t length_in(const CharacterSet& set, const bool* ascii, std::string_view text,
                             std::size_t at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) return ascii[byte] ? 1 : 0;
    const Utf8Step step = decode_utf8(text, at);
    return set.holds_beyond_ascii(step.code_point) ? step.length : 0;
}

}  // namespace

struct TextPattern::Program {
    std::string expression;
    Spaces spaces = Spaces::plain;
    PieceEnd known = nullptr;
    PatternChoices syntax;    // owns the sets
    std::vector<Node> nodes;  // 0 is the end
    std::vector<std::size_t> branches;
    std::vector<std::vector<Step>> steps;  // of each branch; empty if it is more than that
    /// Bit i of a byte: branch i may begin with it.
    std::array<std::uint32_t, 256> starts{};
    std::optional<char> only_start;  // if all matches begin with this one

    std::size_t match(std::size_t node, std::string_view text, std::size_t at) const;

    /// Whether fewer characters than there are can make what follows match: not if that begins with others,
    /// or matches whatever comes.
    bool gains_by_giving_back(const PatternItem& item, std::size_t next) const {
        if (item.possessive || (item.min == 1 && item.max == 1)) return false;
        for (const Node* node = &nodes[next]; node->kind != Node::Kind::end; node = &nodes[node->next]) {
            if (node->kind != Node::Kind::set || node->min > 1) return true;
            if (node->min == 1) return item.set.may_share(*node->set);
            if (item.set.may_share(*node->set)) return true;
        }
        return false;
    }

    std::size_t compile(const PatternSequence& sequence, std::size_t next) {
        for (auto item = sequence.rbegin(); item != sequence.rend(); ++item) next = compile(*item, next);
        return next;
    }
    std::size_t compile(const PatternItem& item, std::size_t next) {
        Node node{.negative = item.negative,
                  .gives_back = item.kind == PatternItem::Kind::set && gains_by_giving_back(item, next),
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

    std::vector<Step> steps_of(std::size_t branch) const {
        std::vector<Step> all;
        for (const Node* node = &nodes[branch]; node->kind != Node::Kind::end; node = &nodes[node->next]) {
            if (node->kind != Node::Kind::set || node->gives_back) return {};
            const bool endless = node->max == PatternItem::unlimited && node->min <= 1;
            const auto kind = endless ? node->min == 1 ? Step::Kind::some : Step::Kind::any
                              : node->min == 0 && node->max == 1 ? Step::Kind::at_most_one
                                                                 : Step::Kind::counted;
            all.push_back({.kind = kind, .ascii = node->set->ascii.data(), .node = node});
        }
        return all;
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
        for (const std::size_t branch : branches) steps.push_back(steps_of(branch));
        const auto begins = [](std::uint32_t bits) { return bits != 0; };
        if (std::ranges::count_if(starts, begins) == 1) {
            const auto byte = std::ranges::find_if(starts, begins) - starts.begin();
            if (byte < 0x80) only_start = static_cast<char>(byte);
        }
    }
};

/// The characters of the set from `at` on: `end` behind as many as the node wants, `least` behind as few.
struct Run {
    std::size_t least, end;
};

inline Run run_of(const Node& node, std::string_view text, std::size_t at) {
    const CharacterSet& set = *node.set;
    const auto length = [&] { return length_in(set, set.ascii.data(), text, at); };
    Run run{.least = at, .end = none};
    std::uint32_t count = 0;
    for (; count < node.min; ++count) {
        const std::size_t more = at < text.size() ? length() : 0;
        if (more == 0) return run;
        at += more;
    }
    run.least = at;
    if (node.max == PatternItem::unlimited) {
        while (at < text.size()) {
            const std::size_t more = length();
            if (more == 0) break;
            at += more;
        }
    } else {
        for (; count < node.max && at < text.size(); ++count) {
            const std::size_t more = length();
            if (more == 0) break;
            at += more;
        }
    }
    run.end = at;
    return run;
}

std::size_t TextPattern::Program::match(std::size_t index, std::string_view text, std::size_t at) const {
    for (;;) {
        const Node& node = nodes[index];
        switch (node.kind) {
            case Node::Kind::end:
                return at;
            case Node::Kind::set: {
                const Run run = run_of(node, text, at);
                if (run.end == none) return none;
                at = run.end;
                if (!node.gives_back) break;
                for (;;) {
                    const std::size_t end = match(node.next, text, at);
                    if (end != none || at == run.least) return end;
                    at = character_before(text, at);
                }
            }
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

namespace {

inline std::size_t end_of_steps(const std::vector<Step>& steps, std::string_view text, std::size_t at) {
    for (const Step& step : steps) {
        const auto length = [&]() -> std::size_t {
            return at < text.size() ? length_in(*step.node->set, step.ascii, text, at) : 0;
        };
        switch (step.kind) {
            case Step::Kind::at_most_one:
                at += length();
                break;
            case Step::Kind::some: {
                const std::size_t first = length();
                if (first == 0) return none;
                at += first;
                [[fallthrough]];
            }
            case Step::Kind::any:
                while (const std::size_t more = length()) at += more;
                break;
            case Step::Kind::counted:
                at = run_of(*step.node, text, at).end;
                if (at == none) return none;
                break;
        }
    }
    return at;
}

}  // namespace

TextPattern::Match TextPattern::find(std::string_view text, std::size_t from) const {
    const Program& program = *program_;
    if (program.known && from < text.size()) return {from, program.known(text, from)};
    for (std::size_t at = from; at < text.size();) {
        if (program.only_start) {
            at = text.find(*program.only_start, at);
            if (at == none) break;
        }
        const auto byte = static_cast<unsigned char>(text[at]);
        for (std::uint32_t left = program.starts[byte]; left != 0; left &= left - 1) {
            const auto branch = static_cast<std::size_t>(std::countr_zero(left));
            const std::vector<Step>& steps = program.steps[branch];
            const std::size_t end = steps.empty() ? program.match(program.branches[branch], text, at)
                                                  : end_of_steps(steps, text, at);
            if (end != none) return {at, end};
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
    program->known = known_piece_end(expression, spaces);
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
