#include "mantissa/data/unicode.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <vector>

namespace mantissa::inline v0 {

namespace {

constexpr std::size_t code_points = 0x110000;

/// The properties of a lead byte: the number of bytes that follow, and the range of the first one, which
/// excludes overlong forms, surrogates and values above U+10FFFF (Unicode 16.0, table 3-7).
struct Lead {
    unsigned following;
    unsigned char first_low, first_high;
};

Lead lead_of(unsigned char byte) {
    if (byte >= 0xC2 && byte <= 0xDF) return {1, 0x80, 0xBF};
    if (byte == 0xE0) return {2, 0xA0, 0xBF};
    if (byte == 0xED) return {2, 0x80, 0x9F};
    if (byte >= 0xE1 && byte <= 0xEF) return {2, 0x80, 0xBF};
    if (byte == 0xF0) return {3, 0x90, 0xBF};
    if (byte >= 0xF1 && byte <= 0xF3) return {3, 0x80, 0xBF};
    if (byte == 0xF4) return {3, 0x80, 0x8F};
    return {0, 0, 0};
}

}  // namespace

template <class Value>
CodePointTable<Value>::CodePointTable(const std::vector<Value>& of_all) {
    std::map<std::string, std::uint32_t> known;  // blocks, by their bytes
    for (std::size_t first = 0; first < of_all.size(); first += 256) {
        const auto begin = of_all.begin() + static_cast<std::ptrdiff_t>(first);
        const std::string bytes(reinterpret_cast<const char*>(&*begin), 256 * sizeof(Value));
        const auto [found, fresh] = known.emplace(bytes, static_cast<std::uint32_t>(values_.size()));
        if (fresh) values_.insert(values_.end(), begin, begin + 256);
        blocks_.push_back(found->second);
    }
}

template class CodePointTable<std::uint8_t>;
template class CodePointTable<std::uint16_t>;

CategorySet categories_of(std::string_view name) {
    CategorySet set = 0;
    for (std::size_t i = 0; 2 * i < category_names.size(); ++i)
        if (category_names.substr(2 * i, 2).starts_with(name)) set |= CategorySet{1} << i;
    if (name == "Cc") set |= categories_of("Cw");
    return name == "Cw" ? CategorySet{1} << (category_names.size() / 2 - 1) : set;
}

unsigned category_of(char32_t code_point) {
    static const CodePointTable<std::uint8_t> table = [] {
        constexpr std::uint32_t by_turns = 31;
        std::vector<std::uint8_t> of_all;
        for (const std::uint32_t word : unicode_categories())
            for (std::uint32_t i = 0; i < word >> 5; ++i)
                of_all.push_back((word & 31) == by_turns ? of_all[of_all.size() - 2]
                                                         : static_cast<std::uint8_t>(word & 31));
        return CodePointTable(of_all);
    }();
    static const unsigned unassigned = static_cast<unsigned>(category_names.find("Cn")) / 2;
    return code_point < code_points ? table[code_point] : unassigned;
}

CharacterClass character_class_beyond_ascii(char32_t code_point) {
    static const CategorySet letters = categories_of("L"), numbers = categories_of("N"),
                             spaces = categories_of("Z") | categories_of("Cw");
    const CategorySet category = CategorySet{1} << category_of(code_point);
    if ((category & letters) != 0) return CharacterClass::letter;
    if ((category & numbers) != 0) return CharacterClass::number;
    return (category & spaces) != 0 ? CharacterClass::space : CharacterClass::other;
}

Utf8Step decode_utf8(std::string_view text, std::size_t at) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char first = byte(at);
    if (first < 0x80) return {first, 1, false};
    const Lead lead = lead_of(first);
    if (lead.following == 0) return {Utf8Step::invalid, 1, false};
    char32_t code_point = first & (0x3FU >> lead.following);
    for (std::size_t i = 1; i <= lead.following; ++i) {
        if (at + i == text.size()) return {Utf8Step::invalid, i, true};
        const unsigned char next = byte(at + i);
        const unsigned char low = i == 1 ? lead.first_low : 0x80;
        const unsigned char high = i == 1 ? lead.first_high : 0xBF;
        if (next < low || next > high) return {Utf8Step::invalid, i, false};
        code_point = (code_point << 6) | (next & 0x3FU);
    }
    return {code_point, lead.following + 1U, false};
}

std::size_t character_before(std::string_view text, std::size_t end) {
    // A lead byte is never a continuation byte, so decoding from the front finds the same sequence as this
    // one that ends here.
    for (std::size_t length = 2; length <= std::min<std::size_t>(4, end); ++length) {
        const Utf8Step step = decode_utf8(text.substr(0, end), end - length);
        if (step.code_point != Utf8Step::invalid && step.length == length) return end - length;
    }
    return end - 1;
}

void append_utf8(std::string& text, char32_t c) {
    const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
    if (c < 0x80) return put(c);
    if (c < 0x800) {
        put(0xC0 | c >> 6);
    } else {
        if (c < 0x10000) {
            put(0xE0 | c >> 12);
        } else {
            put(0xF0 | c >> 18);
            put(0x80 | (c >> 12 & 0x3F));
        }
        put(0x80 | (c >> 6 & 0x3F));
    }
    put(0x80 | (c & 0x3F));
}

namespace {

/// Hangul syllables are composed by arithmetic (Unicode 16.0, section 3.12).
constexpr char32_t first_syllable = 0xAC00, first_lead = 0x1100, first_vowel = 0x1161, first_tail = 0x11A7;
constexpr char32_t leads = 19, vowels = 21, tails = 28;

bool is_syllable(char32_t c) { return c >= first_syllable && c < first_syllable + leads * vowels * tails; }

struct Decomposition {
    std::vector<char32_t> into;  // one step
    bool compatible = false;     // in NFKC and NFKD only
};

class NormalTables {
  public:
    static const NormalTables& instance() {
        static const NormalTables tables;
        return tables;
    }

    /// Whether a text in `form` may have this code point after any other inert one.
    bool is_inert(char32_t c, NormalForm form) const {
        return (changed_[c] >> static_cast<int>(form) & 1) == 0;
    }
    unsigned combining_class(char32_t c) const { return classes_[c]; }

    /// Appends the full decomposition of `c`, marks not yet ordered.
    void decompose(char32_t c, bool compatible, std::vector<char32_t>& into) const {
        if (is_syllable(c)) {
            const char32_t place = c - first_syllable;
            into.push_back(first_lead + place / (vowels * tails));
            into.push_back(first_vowel + place % (vowels * tails) / tails);
            if (place % tails != 0) into.push_back(first_tail + place % tails);
            return;
        }
        const std::uint16_t at = places_[c];
        if (at == 0 || (list_[at].compatible && !compatible)) return into.push_back(c);
        for (const char32_t part : list_[at].into) decompose(part, compatible, into);
    }

    /// The code point that the two compose to, or 0.
    char32_t compose(char32_t first, char32_t second) const {
        if (first >= first_lead && first < first_lead + leads && second >= first_vowel &&
            second < first_vowel + vowels)
            return first_syllable + ((first - first_lead) * vowels + (second - first_vowel)) * tails;
        if (is_syllable(first) && (first - first_syllable) % tails == 0 && second > first_tail &&
            second < first_tail + tails)
            return first + (second - first_tail);
        const auto found = compositions_.find(std::uint64_t{first} << 32 | second);
        return found == compositions_.end() ? 0 : found->second;
    }

  private:
    static constexpr int bit(NormalForm form) { return 1 << static_cast<int>(form); }

    NormalTables() {
        constexpr int composed = bit(NormalForm::nfc) | bit(NormalForm::nfkc);
        constexpr int decomposed = bit(NormalForm::nfd) | bit(NormalForm::nfkd);
        constexpr int for_compatibility = bit(NormalForm::nfkc) | bit(NormalForm::nfkd);
        std::vector<std::uint16_t> places(0x110000);
        std::vector<std::uint8_t> classes(0x110000), changed(0x110000);
        const auto change = [&](char32_t c, int forms) {
            changed[c] = static_cast<std::uint8_t>(changed[c] | forms);
        };
        const auto words = unicode_decompositions();
        char32_t code_point = 0;
        for (std::size_t at = 0; at < words.size();) {
            const std::uint32_t header = words[at++], count = words[at] >> 3, moves = words[at++] & 7;
            const std::size_t length = header & 31;
            const bool compatible = (header >> 5 & 1) != 0, composes = (header >> 6 & 1) != 0;
            code_point += header >> 7;
            for (char32_t i = 0; i < count; ++i, ++code_point) {
                Decomposition step{.into = {}, .compatible = compatible};
                for (std::size_t part = 0; part < length; ++part)
                    step.into.push_back(moves == 0 ? words[at + i * length + part]
                                                   : words[at + part] + (moves >> part & 1) * i);
                if (composes) compositions_[std::uint64_t{step.into[0]} << 32 | step.into[1]] = code_point;
                if (composes) change(step.into[1], composed);
                change(code_point, compatible ? for_compatibility
                                   : composes ? decomposed
                                              : composed | decomposed);
                places[code_point] = static_cast<std::uint16_t>(list_.size());
                list_.push_back(std::move(step));
            }
            at += moves == 0 ? count * length : length;
        }
        code_point = 0;
        for (const std::uint32_t word : unicode_combining_classes())
            for (std::uint32_t i = 0; i < word >> 8; ++i, ++code_point) {
                classes[code_point] = static_cast<std::uint8_t>(word);
                if (classes[code_point] != 0) change(code_point, composed | decomposed);
            }
        for (char32_t i = 0; i < leads * vowels * tails; ++i) change(first_syllable + i, decomposed);
        for (char32_t i = 0; i < vowels; ++i) change(first_vowel + i, composed);
        for (char32_t i = 1; i < tails; ++i) change(first_tail + i, composed);
        // In compatibility forms, a code point changes if a part of its decomposition does.
        for (code_point = 0; code_point < 0x110000; ++code_point) {
            if (places[code_point] == 0 || (changed[code_point] & bit(NormalForm::nfkc)) != 0) continue;
            const auto& into = list_[places[code_point]].into;
            if (std::ranges::any_of(
                    into, [&](char32_t part) { return places[part] != 0 && list_[places[part]].compatible; }))
                change(code_point, bit(NormalForm::nfkc));
        }
        places_ = CodePointTable(places);
        classes_ = CodePointTable(classes);
        changed_ = CodePointTable(changed);
    }

    std::vector<Decomposition> list_ = std::vector<Decomposition>(1);  // place 0 is unused
    CodePointTable<std::uint16_t> places_;
    CodePointTable<std::uint8_t> classes_, changed_;
    std::unordered_map<std::uint64_t, char32_t> compositions_;
};

/// Sorts each row of combining marks by class.
void order_marks(const NormalTables& tables, std::vector<char32_t>& characters) {
    for (auto begin = characters.begin(); begin != characters.end();) {
        if (tables.combining_class(*begin) == 0) {
            ++begin;
            continue;
        }
        const auto end =
            std::find_if(begin, characters.end(), [&](char32_t c) { return tables.combining_class(c) == 0; });
        std::stable_sort(begin, end, [&](char32_t a, char32_t b) {
            return tables.combining_class(a) < tables.combining_class(b);
        });
        begin = end;
    }
}

/// Composes in place (UAX #15, the canonical composition algorithm).
void compose_all(const NormalTables& tables, std::vector<char32_t>& characters) {
    constexpr std::size_t none = static_cast<std::size_t>(-1);
    std::size_t starter = none, kept = 0;
    unsigned last_class = 0;
    for (const char32_t c : std::vector<char32_t>(characters)) {
        const unsigned own_class = tables.combining_class(c);
        // A mark of an equal class in between, or a starter, prevents composition.
        const bool reaches =
            starter != none && (kept == starter + 1 || (last_class != 0 && last_class < own_class));
        const char32_t composed = reaches ? tables.compose(characters[starter], c) : 0;
        if (composed != 0) {
            characters[starter] = composed;
            continue;
        }
        if (own_class == 0) starter = kept;
        last_class = own_class;
        characters[kept++] = c;
    }
    characters.resize(kept);
}

}  // namespace

bool normalize_unicode(std::string_view text, NormalForm form, std::string& normal) {
    const NormalTables& tables = NormalTables::instance();
    const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
    const bool composes = form == NormalForm::nfc || form == NormalForm::nfkc;
    const auto inert = [&](const Utf8Step& step) {
        return step.code_point < 0x80 || step.code_point == Utf8Step::invalid ||
               tables.is_inert(step.code_point, form);
    };
    std::size_t copied = 0, last = 0;  // written so far; last inert character
    bool changes = false;
    std::vector<char32_t> characters;
    for (std::size_t at = 0; at < text.size();) {
        Utf8Step step = decode_utf8(text, at);
        if (inert(step)) {
            last = at;
            at += step.length;
            continue;
        }
        if (!changes) normal.clear();
        changes = true;
        // Reaches from the previous inert character, which may compose with it, to the next one.
        std::size_t from =
            decode_utf8(text, last).code_point == Utf8Step::invalid ? at : std::max(copied, last);
        normal.append(text, copied, from - copied);
        characters.clear();
        do {
            step = decode_utf8(text, from);
            if (from > last && inert(step)) break;
            tables.decompose(step.code_point, compatible, characters);
            from += step.length;
        } while (from < text.size());
        order_marks(tables, characters);
        if (composes) compose_all(tables, characters);
        for (const char32_t c : characters) append_utf8(normal, c);
        at = copied = last = from;
    }
    if (changes) normal.append(text, copied);
    return changes;
}

}  // namespace mantissa
