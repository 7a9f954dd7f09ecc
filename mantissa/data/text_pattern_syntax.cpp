#include "mantissa/data/text_pattern_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

namespace mantissa::inline v0 {

bool CharacterSet::may_hold(CharacterClass kind) const {
    for (unsigned char c = 0; c < ascii.size(); ++c)
        if (ascii[c] && character_class(c) == kind) return true;
    if (!ranges.empty() || all_but_these) return true;
    const CategorySet letters = categories_of("L"), numbers = categories_of("N"),
                      spaces = categories_of("Z") | categories_of("Cw");
    const CategorySet of_kind = kind == CharacterClass::letter   ? letters
                                : kind == CharacterClass::number ? numbers
                                : kind == CharacterClass::space  ? spaces
                                                                 : ~(letters | numbers | spaces);
    return (categories & of_kind) != 0;
}

namespace {

bool may_match_nothing(const PatternChoices& choices);

bool may_match_nothing(const PatternItem& item) {
    if (item.kind != PatternItem::Kind::set && item.kind != PatternItem::Kind::group) return true;
    return item.min == 0 || (item.kind == PatternItem::Kind::group && may_match_nothing(item.choices));
}

bool may_match_nothing(const PatternChoices& choices) {
    return std::ranges::any_of(choices, [](const PatternSequence& sequence) {
        return std::ranges::all_of(sequence, [](const PatternItem& item) { return may_match_nothing(item); });
    });
}

void add_categories(CharacterSet& set, CategorySet categories) {
    set.categories |= categories;
    for (unsigned char c = 0; c < set.ascii.size(); ++c)
        if ((categories >> category_of(c) & 1) != 0) set.ascii[c] = true;
}

void add_range(CharacterSet& set, char32_t first, char32_t last) {
    for (char32_t c = first; c <= last && c < set.ascii.size(); ++c) set.ascii[c] = true;
    if (last >= set.ascii.size()) set.ranges.emplace_back(std::max<char32_t>(first, 0x80), last);
}

void complement(CharacterSet& set) {
    for (bool& there : set.ascii) there = !there;
    if (set.ranges.empty())
        set.categories = ~set.categories;
    else
        set.all_but_these = !set.all_but_these;
}

/// Thrown for an unsupported part of an expression.
struct NotUnderstood {
    std::string what;
};

class PatternParser {
  public:
    PatternParser(std::string_view expression, Spaces spaces) : text_(expression), spaces_(spaces) {}

    PatternChoices parse() {
        PatternChoices choices = parse_choices();
        if (at_ < text_.size()) refuse(")");
        if (may_match_nothing(choices)) throw NotUnderstood{"an expression that may match nothing"};
        return choices;
    }

  private:
    [[noreturn]] void refuse(std::string_view what) const { throw NotUnderstood{fmt::format("{}", what)}; }
    void enter() {
        constexpr int deepest = 100;
        if (++depth_ > deepest) refuse("a group or class within so many others");
    }
    bool more() const { return at_ < text_.size(); }
    bool take(std::string_view what) {
        if (!text_.substr(at_).starts_with(what)) return false;
        at_ += what.size();
        return true;
    }
    char32_t next_character() {
        if (!more()) refuse("an expression that ends early");
        const Utf8Step step = decode_utf8(text_, at_);
        at_ += step.length;
        return step.code_point;
    }

    PatternChoices parse_choices() {
        PatternChoices choices;
        do {
            PatternSequence sequence;
            last_letter_ = 0;
            while (more() && text_[at_] != '|' && text_[at_] != ')') sequence.push_back(parse_item());
            choices.push_back(std::move(sequence));
        } while (take("|"));
        return choices;
    }

    PatternItem parse_item() {
        const std::size_t begin = at_;
        PatternItem item = parse_atom();
        if (!parse_number(item)) return item;
        if (take("?")) refuse("a lazy " + std::string(text_.substr(begin, at_ - begin)));
        item.possessive = take("+");
        if (item.possessive && text_[at_ - 2] == '}') {
            // In this syntax a second operator repeats the first.
            if (item.min > 1) refuse(text_.substr(begin, at_ - begin));
            item.possessive = false;
            item.max = PatternItem::unlimited;
        }
        if (item.kind == PatternItem::Kind::set) return item;
        const bool often =
            item.max == PatternItem::unlimited && item.min <= 1 && !may_match_nothing(item.choices);
        if (item.kind != PatternItem::Kind::group || item.possessive || (item.max > 1 && !often))
            refuse("a repeated " + std::string(text_.substr(begin, at_ - begin)));
        return item;
    }

    /// Parses the number of repetitions; false if there is none.
    bool parse_number(PatternItem& item) {
        if (take("?")) {
            item.min = 0;
        } else if (take("*")) {
            item.min = 0;
            item.max = PatternItem::unlimited;
        } else if (take("+")) {
            item.max = PatternItem::unlimited;
        } else if (more() && text_[at_] == '{') {
            const std::size_t end = text_.find('}', at_);
            if (end == text_.npos) refuse("{");
            const std::string_view numbers = text_.substr(at_ + 1, end - at_ - 1);
            const std::size_t comma = std::min(numbers.find(','), numbers.size());
            const auto read = [&](std::string_view digits, std::uint32_t absent) {
                std::uint32_t value = absent;
                const auto [stop, error] = std::from_chars(digits.begin(), digits.end(), value);
                if (digits.empty() ? absent == 0 : error != std::errc() || stop != digits.end())
                    refuse(text_.substr(at_, end - at_ + 1));
                return value;
            };
            item.min = read(numbers.substr(0, comma), 0);
            item.max =
                comma == numbers.size() ? item.min : read(numbers.substr(comma + 1), PatternItem::unlimited);
            if (item.max == 0 || item.max < item.min) refuse(text_.substr(at_, end - at_ + 1));
            at_ = end + 1;
        } else {
            return false;
        }
        return true;
    }

    PatternItem parse_atom() {
        if (take("(")) return parse_group();
        if (take("$")) return {.kind = PatternItem::Kind::line_end};
        PatternItem item;
        if (take("[")) {
            item.set = parse_class();
        } else if (take(".")) {
            add_range(item.set, '\n', '\n');
            complement(item.set);
        } else if (take("\\")) {
            item.set = parse_escape();
        } else {
            const char32_t c = next_character();
            if (c < 0x80 && std::string_view("^*+?{").find(static_cast<char>(c)) != text_.npos)
                refuse(std::string(1, static_cast<char>(c)));
            require_single_folds(c);
            add_character(item.set, c);
        }
        if (spaces_ == Spaces::visible)
            item.set.ascii[' '] = item.set.holds_beyond_ascii(0x2581, category_of(0x2581));
        return item;
    }

    PatternItem parse_group() {
        PatternItem item{.kind = PatternItem::Kind::group};
        const bool outer = any_case_;
        enter();
        if (take("?")) {
            if (take("i:")) {
                any_case_ = true;
            } else if (take("!")) {
                item.kind = PatternItem::Kind::ahead;
                item.negative = true;
            } else if (take("=")) {
                item.kind = PatternItem::Kind::ahead;
            } else if (!take(":")) {
                refuse("(?" + std::string(text_.substr(at_, 2)));
            }
        }
        item.choices = parse_choices();
        if (!take(")")) refuse("a group that does not end");
        --depth_;
        any_case_ = outer;
        return item;
    }

    /// Parses a class after its opening bracket.
    CharacterSet parse_class() {
        CharacterSet set;
        enter();
        const bool negative = take("^");
        bool first = true;
        for (; first || !take("]"); first = false) {
            if (take("&&")) {
                keep_both(set, parse_rest_of_class());
                break;
            }
            if (take("[")) {
                if (take(":")) refuse("[:");
                unite(set, parse_class());
                continue;
            }
            std::optional<char32_t> begin = parse_member(set);
            if (!begin || !more() || text_[at_] != '-' || text_.substr(at_ + 1).starts_with("]")) {
                if (begin) add_character(set, *begin);
                continue;
            }
            ++at_;
            CharacterSet none;
            const std::optional<char32_t> end = parse_member(none);
            if (!end || *end < *begin) refuse("a range in a class that does not end");
            if (any_case_ && *end < 0x80)
                for (char32_t c = *begin; c <= *end; ++c) add_character(set, c);
            else
                add_range(set, *begin, *end);
        }
        if (negative) complement(set);
        --depth_;
        return set;
    }

    CharacterSet parse_rest_of_class() {
        // Up to the outer closing bracket, which would also end an inner class.
        return parse_class();
    }

    /// A character; none if it was a class, which is added to `set`.
    std::optional<char32_t> parse_member(CharacterSet& set) {
        if (!take("\\")) return next_character();
        const std::size_t begin = at_;
        if (const auto character = parse_escaped_character()) return character;
        at_ = begin;
        unite(set, parse_escape());
        return std::nullopt;
    }

    void unite(CharacterSet& set, const CharacterSet& more) const {
        if (more.all_but_these || set.all_but_these) refuse("a class that leaves out characters in another");
        for (std::size_t c = 0; c < set.ascii.size(); ++c) set.ascii[c] |= more.ascii[c];
        set.categories |= more.categories;
        set.ranges.insert(set.ranges.end(), more.ranges.begin(), more.ranges.end());
    }

    void keep_both(CharacterSet& set, const CharacterSet& other) const {
        if (!set.ranges.empty() || !other.ranges.empty()) refuse("&&");
        for (std::size_t c = 0; c < set.ascii.size(); ++c) set.ascii[c] &= other.ascii[c];
        set.categories &= other.categories;
    }

    /// After the backslash: an escaped character, or none for a class.
    std::optional<char32_t> parse_escaped_character() {
        const char32_t c = next_character();
        switch (c) {
            case 'n':
                return '\n';
            case 'r':
                return '\r';
            case 't':
                return '\t';
            case 'v':
                return '\v';
            case 'f':
                return '\f';
            case 'u':
                return parse_hexadecimal(4);
            case 'x':
                if (take("{")) {
                    const std::size_t end = std::min(text_.find('}', at_), text_.size());
                    const char32_t value = parse_hexadecimal(end - at_);
                    if (!take("}")) refuse("\\x{");
                    return value;
                }
                return parse_hexadecimal(2);
            default:
                break;
        }
        const bool word = c < 0x80 && (character_class(c) == CharacterClass::letter ||
                                       character_class(c) == CharacterClass::number);
        return word ? std::nullopt : std::optional(c);
    }

    char32_t parse_hexadecimal(std::size_t digits) {
        std::uint32_t value = 0;
        const std::string_view number = text_.substr(at_, digits);
        const auto [stop, error] = std::from_chars(number.begin(), number.end(), value, 16);
        if (number.empty() || number.size() != digits || error != std::errc() || stop != number.end() ||
            value > 0x10FFFF)
            refuse("an escape of \"" + std::string(number) + "\"");
        at_ += digits;
        return value;
    }

    /// After the backslash.
    CharacterSet parse_escape() {
        CharacterSet set;
        const std::size_t begin = at_;
        if (const auto character = parse_escaped_character()) {
            add_character(set, *character);
            return set;
        }
        at_ = begin + 1;
        const char letter = text_[begin];
        switch (letter) {
            case 's':
            case 'S':
                add_categories(set, categories_of("Z") | categories_of("Cw"));
                break;
            case 'd':
            case 'D':
                add_categories(set, categories_of("Nd"));
                break;
            case 'p':
            case 'P': {
                if (!take("{")) refuse("\\p without braces");
                const bool negative = take("^");
                const std::size_t end = std::min(text_.find('}', at_), text_.size());
                const std::string_view name = text_.substr(at_, end - at_);
                if (end == text_.size() || name.empty() || name == "Cw" || categories_of(name) == 0)
                    refuse(text_.substr(begin - 1, end + 1 - (begin - 1)));
                add_categories(set, categories_of(name));
                if (negative) complement(set);
                at_ = end + 1;
                break;
            }
            default:
                refuse(fmt::format("\\{}", letter));
        }
        if (letter >= 'A' && letter <= 'Z') complement(set);
        return set;
    }

    void add_character(CharacterSet& set, char32_t c) const {
        add_range(set, c, c);
        if (!any_case_) return;
        if (c >= 0x80) refuse("(?i: of a character beyond ASCII");
        if (character_class(c) != CharacterClass::letter) return;
        const char32_t lower = c | 0x20;
        add_range(set, lower, lower);
        add_range(set, lower - 0x20, lower - 0x20);
        // The long s and the Kelvin sign are other cases of s and k.
        if (lower == 's') add_range(set, 0x17F, 0x17F);
        if (lower == 'k') add_range(set, 0x212A, 0x212A);
    }

    /// Refuses two letters that are another case of one: U+00DF, U+FB00.
    void require_single_folds(char32_t c) {
        if (!any_case_ || c >= 0x80) return;
        const char pair[] = {static_cast<char>(last_letter_), static_cast<char>(c | 0x20)};
        for (const char* folds : {"ss", "st", "ff", "fi", "fl"})
            if (std::string_view(folds) == std::string_view(pair, 2)) refuse("(?i: of " + std::string(folds));
        last_letter_ = c | 0x20;
    }

    std::string_view text_;
    Spaces spaces_;
    std::size_t at_ = 0;
    int depth_ = 0;  // of groups and classes
    bool any_case_ = false;
    char32_t last_letter_ = 0;  // the one before, in a group of any case
};

}  // namespace

Expected<PatternChoices> parse_pattern(std::string_view expression, Spaces spaces) {
    try {
        return PatternParser(expression, spaces).parse();
    } catch (const NotUnderstood& error) {
        return Unexpected{error.what};
    }
}

}  // namespace mantissa
