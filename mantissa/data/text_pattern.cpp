#include "mantissa/data/text_pattern.h"

#include <algorithm>
#include <array>
#include <map>

#include "mantissa/base/error.h"
#include "mantissa/data/text_pattern_syntax.h"

namespace mantissa::inline v0 {

namespace {

// The automaton comes from a subset construction over ordered lists of places in the expression (Cox 2009,
// "Regular expression matching in the wild"). If one text leads to two places, the first has the preferred
// choice; a place where the expression ends drops all later ones. Lookahead is decided when the next
// character is read, so a match is reported one character late.

struct CannotFollow {
    const char* what;
};

/// A place in the expression.
struct Place {
    enum class Kind : std::uint8_t { end, set, ahead, choice };
    Kind kind = Kind::end;
    std::vector<bool> classes = {};      // classes that `set` takes, or `ahead` allows
    std::vector<std::size_t> next = {};  // choices in order, or the one next place
};

using SetsOfSyntax = std::vector<const CharacterSet*>;

/// The end of a line, a class of its own if an expression needs it.
const CharacterSet& newline() {
    static const CharacterSet set = [] {
        CharacterSet one;
        one.ascii['\n'] = true;
        return one;
    }();
    return set;
}

void find_sets(const PatternChoices& choices, SetsOfSyntax& sets) {
    for (const PatternSequence& sequence : choices)
        for (const PatternItem& item : sequence) {
            if (item.kind == PatternItem::Kind::set) sets.push_back(&item.set);
            if (item.kind == PatternItem::Kind::line_end) sets.push_back(&newline());
            find_sets(item.choices, sets);
        }
}

}  // namespace

class AutomatonBuilder {
  public:
    PatternAutomaton build(const PatternChoices& choices) {
        find_classes(choices);
        places_.emplace_back();
        const std::size_t first = add(choices, 0);
        automaton_.classes_ = classes_;
        number_of({});
        number_of({first});
        for (std::size_t state = 0; state < states_.size(); ++state) {
            std::vector<Step> steps;
            for (std::size_t c = 0; c <= classes_; ++c) steps.push_back(step(*states_[state], c));
            steps_.push_back(std::move(steps));
        }
        for (const std::vector<Step>& steps : steps_) add_row(steps);
        return std::move(automaton_);
    }

  private:
    using List = std::vector<std::size_t>;  // of places, the preferred first
    struct Step {
        std::size_t state;
        bool matched;
    };
    // Published tokenizers' expressions have about 100 places and states.
    static constexpr std::size_t most_places = 2000, most_states = 4000, most_looks = 4'000'000;

    /// Groups the code points that all sets of the expression treat alike.
    void find_classes(const PatternChoices& choices) {
        SetsOfSyntax sets;
        find_sets(choices, sets);
        if (sets.size() > most_places) throw CannotFollow{"an expression of so many parts"};
        auto& segments = automaton_.segments_;
        for (const CharacterSet* set : sets)
            for (const auto& [first, last] : set->ranges) segments.insert(segments.end(), {first, last + 1});
        std::ranges::sort(segments);
        segments.erase(std::unique(segments.begin(), segments.end()), segments.end());

        std::map<std::vector<bool>, std::uint16_t> known;
        const auto class_of = [&](auto&& holds) {
            std::vector<bool> members;
            for (const CharacterSet* set : sets) members.push_back(holds(*set));
            const auto [found, fresh] = known.emplace(members, static_cast<std::uint16_t>(known.size()));
            if (fresh) members_.push_back(std::move(members));
            return found->second;
        };
        for (std::size_t c = 0; c < of_ascii_.size(); ++c)
            of_ascii_[c] = class_of([&](const CharacterSet& set) { return set.ascii[c]; });
        for (std::size_t segment = 0; segment <= segments.size(); ++segment) {
            const char32_t code_point = segment == 0 ? 0x80 : segments[segment - 1];
            for (unsigned category = 0; category < 32; ++category)
                automaton_.class_of_category_.push_back(class_of(
                    [&](const CharacterSet& set) { return set.holds_beyond_ascii(code_point, category); }));
        }
        for (std::size_t i = 0; i < sets.size(); ++i) set_numbers_[sets[i]] = i;
        classes_ = known.size();
    }

    /// The classes of a set, and last the end of the text, which no set has.
    std::vector<bool> classes_of(const CharacterSet& set) const {
        std::vector<bool> classes(classes_ + 1);
        for (std::size_t c = 0; c < classes_; ++c) classes[c] = members_[c][set_numbers_.at(&set)];
        return classes;
    }

    std::size_t add(Place place) {
        if (places_.size() == most_places) throw CannotFollow{"an expression of so many parts"};
        places_.push_back(std::move(place));
        return places_.size() - 1;
    }
    std::size_t add(const PatternChoices& choices, std::size_t next) {
        Place place{.kind = Place::Kind::choice};
        for (const PatternSequence& sequence : choices) {
            std::size_t begin = next;
            for (auto item = sequence.rbegin(); item != sequence.rend(); ++item) begin = add(*item, begin);
            place.next.push_back(begin);
        }
        return add(std::move(place));
    }
    std::size_t add(const PatternItem& item, std::size_t next) {
        using enum Place::Kind;
        switch (item.kind) {
            case PatternItem::Kind::set:
                return add_characters(item, next);
            case PatternItem::Kind::group: {
                const bool often = item.max > 1;
                const std::size_t again = often ? add({.kind = choice, .next = {next}}) : next;
                const std::size_t inside = add(item.choices, again);
                if (often) places_[again].next = {inside, next};
                return item.min == 1 ? inside : often ? again : add({.kind = choice, .next = {inside, next}});
            }
            case PatternItem::Kind::line_end:
                return add({.kind = ahead, .classes = line_ends(), .next = {next}});
            case PatternItem::Kind::ahead:
                break;
        }
        std::vector<bool> passes(classes_ + 1);
        for (const PatternSequence& sequence : item.choices) {
            const bool ends_line = sequence.size() == 1 && sequence[0].kind == PatternItem::Kind::line_end;
            if (!ends_line &&
                (sequence.size() != 1 || sequence[0].kind != PatternItem::Kind::set || sequence[0].min != 1))
                throw CannotFollow{"a look-ahead that is not of one character"};
            const auto more = ends_line ? line_ends() : classes_of(sequence[0].set);
            for (std::size_t c = 0; c <= classes_; ++c) passes[c] = passes[c] || more[c];
        }
        if (item.negative) passes.flip();
        return add({.kind = ahead, .classes = std::move(passes), .next = {next}});
    }
    /// Repeats a set as often as possible, with backtracking unless it is possessive: then a lookahead keeps
    /// it from stopping early.
    std::size_t add_characters(const PatternItem& item, std::size_t next) {
        using enum Place::Kind;
        const auto classes = classes_of(item.set);
        std::size_t stop = next;
        if (item.possessive && item.min < item.max) {
            auto others = classes;
            others.flip();
            stop = add({.kind = ahead, .classes = std::move(others), .next = {next}});
        }
        std::size_t begin = next;
        if (item.max == PatternItem::unlimited) {
            begin = add({.kind = choice, .next = {places_.size() + 1, stop}});
            add({.kind = set, .classes = classes, .next = {begin}});
        } else {
            for (std::uint32_t i = item.min; i < item.max; ++i) {
                begin = add({.kind = set, .classes = classes, .next = {begin}});
                begin = add({.kind = choice, .next = {begin, stop}});
            }
        }
        for (std::uint32_t i = 0; i < item.min; ++i)
            begin = add({.kind = set, .classes = classes, .next = {begin}});
        return begin;
    }
    std::vector<bool> line_ends() const {
        auto classes = classes_of(newline());
        classes[classes_] = true;
        return classes;
    }

    std::size_t number_of(List list) {
        const auto [found, fresh] = numbers_.emplace(std::move(list), states_.size());
        if (!fresh) return found->second;
        if (states_.size() == most_states) throw CannotFollow{"an expression of so many states"};
        states_.push_back(&found->first);
        return found->second;
    }

    /// Reads a character of a class, or the end, at the places of the list.
    Step step(const List& list, std::size_t c) {
        List next, left(list.rbegin(), list.rend());
        std::vector<bool> seen(places_.size()), taken(places_.size());
        while (!left.empty()) {
            if (++looks_ > most_looks) throw CannotFollow{"an expression of so many states"};
            const std::size_t at = left.back();
            const Place& place = places_[at];
            left.pop_back();
            if (seen[at]) continue;
            seen[at] = true;
            if (place.kind == Place::Kind::end) return {number_of(std::move(next)), true};
            if (place.kind == Place::Kind::choice) {
                left.insert(left.end(), place.next.rbegin(), place.next.rend());
            } else if (place.classes[c]) {
                const std::size_t behind = place.next[0];
                if (place.kind == Place::Kind::ahead) left.push_back(behind);
                if (place.kind == Place::Kind::set && !taken[behind]) next.push_back(behind);
                if (place.kind == Place::Kind::set) taken[behind] = true;
            }
        }
        return {number_of(std::move(next)), false};
    }

    void add_row(const std::vector<Step>& steps) {
        using Entry = PatternAutomaton::Entry;
        std::vector<Entry> entries;
        for (std::size_t c = 0; c < classes_; ++c) {
            // A match is irrelevant if a later one is certain.
            const bool surpassed =
                std::ranges::all_of(steps_[steps[c].state], [](const Step& step) { return step.matched; });
            const bool kept = steps[c].matched && !surpassed;
            entries.push_back(
                static_cast<Entry>(2 * steps[c].state + (kept ? PatternAutomaton::matched : 0)));
        }
        for (const std::uint16_t c : of_ascii_) automaton_.by_byte_.push_back(entries[c]);
        // Non-ASCII characters need no table if all end the search alike.
        const auto& others = automaton_.class_of_category_;
        const Entry one = entries[others[0]];
        const bool alike = one <= PatternAutomaton::matched &&
                           std::ranges::all_of(others, [&](std::uint16_t c) { return entries[c] == one; });
        automaton_.by_byte_.insert(automaton_.by_byte_.end(), 128,
                                   alike ? one : PatternAutomaton::beyond_ascii);
        automaton_.by_class_.insert(automaton_.by_class_.end(), entries.begin(), entries.end());
        automaton_.at_end_.push_back(steps[classes_].matched);
    }

    PatternAutomaton automaton_;
    std::array<std::uint16_t, 128> of_ascii_{};  // classes
    std::vector<std::vector<bool>> members_;     // of each class, by sets
    std::map<const CharacterSet*, std::size_t> set_numbers_;
    std::size_t classes_ = 0, looks_ = 0;
    std::vector<Place> places_;  // the first is the end
    std::map<List, std::size_t> numbers_;
    std::vector<const List*> states_;
    std::vector<std::vector<Step>> steps_;  // [state, class or end]
};

Expected<PatternAutomaton> PatternAutomaton::of_syntax(const PatternChoices& choices) {
    try {
        return AutomatonBuilder().build(choices);
    } catch (const CannotFollow& error) {
        return Unexpected{error.what};
    }
}

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
