#include "mantissa/data/tokenizer_split.h"

#include <algorithm>

#include "mantissa/data/unicode.h"

namespace mantissa::inline v0 {

namespace {

/// A code point's class and length, or of one part of invalid UTF-8.
struct Character {
    CharacterClass kind;
    std::size_t length;
};

inline Character character_at(std::string_view text, std::size_t at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) return {character_class(byte), 1};
    const Utf8Step step = decode_utf8(text, at);
    return {character_class(step.code_point), step.length};
}

/// The end of the run of characters of `kind` that goes on at `at`.
std::size_t run_end(std::string_view text, std::size_t at, CharacterClass kind) {
    while (at < text.size()) {
        const Character next = character_at(text, at);
        if (next.kind != kind) break;
        at += next.length;
    }
    return at;
}

/// The length of the contraction that begins at the apostrophe at `at`, or 0.
std::size_t contraction_length(std::string_view text, std::size_t at) {
    const std::string_view after = text.substr(at + 1, 2);
    if (after.empty()) return 0;
    if (after[0] == 's' || after[0] == 't' || after[0] == 'm' || after[0] == 'd') return 2;
    return after == "re" || after == "ve" || after == "ll" ? 3 : 0;
}

/// White space leaves its last character to what follows it, which may take a space along.
std::size_t space_end(std::string_view text, std::size_t begin) {
    std::size_t end = begin, last = begin;
    while (end < text.size()) {
        const Character next = character_at(text, end);
        if (next.kind != CharacterClass::space) break;
        last = end;
        end += next.length;
    }
    return end == text.size() || last == begin ? end : last;
}

std::size_t gpt2_piece_end(std::string_view text, std::size_t begin) {
    if (text[begin] == '\'') {
        if (const std::size_t length = contraction_length(text, begin)) return begin + length;
    }
    std::size_t at = begin;
    if (text[begin] == ' ' && begin + 1 < text.size()) ++at;
    const Character first = character_at(text, at);
    if (first.kind == CharacterClass::space) return space_end(text, begin);
    return run_end(text, at + first.length, first.kind);
}

bool ends_a_line(char c) { return c == '\r' || c == '\n'; }

/// The length of the contraction, in letters of either case, that begins at the apostrophe at `at`, or 0. The
/// long s, U+017F, is an s of another case.
std::size_t any_case_contraction_length(std::string_view text, std::size_t at) {
    constexpr std::string_view long_s = "\xC5\xBF";
    if (text.substr(at + 1).starts_with(long_s)) return 1 + long_s.size();
    char lower[3] = {'\'', 0, 0};
    for (std::size_t i = 1; i < 3 && at + i < text.size(); ++i) {
        const char c = text[at + i];
        lower[i] = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    return contraction_length({lower, std::min<std::size_t>(3, text.size() - at)}, 0);
}

/// White space: up to the last end of a line in it, else as GPT-2's.
std::size_t llama3_space_end(std::string_view text, std::size_t begin) {
    const std::size_t end = run_end(text, begin, CharacterClass::space);
    for (std::size_t at = end; at > begin; --at)
        if (ends_a_line(text[at - 1])) return at;
    return space_end(text, begin);
}

std::size_t llama3_piece_end(std::string_view text, std::size_t begin) {
    using enum CharacterClass;
    if (text[begin] == '\'') {
        if (const std::size_t length = any_case_contraction_length(text, begin)) return begin + length;
    }
    const Character first = character_at(text, begin);
    const std::size_t behind = begin + first.length;
    if (first.kind == letter) return run_end(text, behind, letter);
    if (first.kind == number) {
        std::size_t end = behind;
        for (int more = 0; more < 2 && end < text.size(); ++more) {
            const Character next = character_at(text, end);
            if (next.kind != number) break;
            end += next.length;
        }
        return end;
    }
    const CharacterClass next = behind < text.size() ? character_at(text, behind).kind : space;
    if (next == letter && !ends_a_line(text[begin])) return run_end(text, behind, letter);
    if (first.kind == other || (text[begin] == ' ' && next == other)) {
        std::size_t end = run_end(text, behind, other);
        while (end < text.size() && ends_a_line(text[end])) ++end;
        return end;
    }
    return llama3_space_end(text, begin);
}

/// The next space from `from` on: with `alone` any, else the first of a row.
std::size_t next_space(std::string_view text, std::size_t from, bool alone) {
    std::size_t at = text.find(' ', from);
    while (!alone && at != text.npos && at > 0 && text[at - 1] == ' ') at = text.find(' ', at + 1);
    return std::min(at, text.size());
}

}  // namespace

std::size_t piece_end(std::string_view text, std::size_t begin, Split split) {
    switch (split) {
        case Split::gpt2:
            return gpt2_piece_end(text, begin);
        case Split::llama3:
            return llama3_piece_end(text, begin);
        case Split::before_each_space:
        case Split::before_spaces:
            return next_space(text, begin + 1, split == Split::before_each_space);
        case Split::nowhere:
            break;
    }
    return text.size();
}

std::size_t safe_cut(std::string_view text, std::size_t wanted, Split split) {
    if (split == Split::nowhere) return text.size();
    if (split == Split::before_spaces || split == Split::before_each_space)
        return next_space(text, std::max<std::size_t>(wanted, 1), false);
    for (std::size_t at = std::max<std::size_t>(wanted, 1); at < text.size(); ++at) {
        if (split == Split::llama3) {
            // Marks take the ends of lines behind them along, and white space the letter behind it.
            if (text[at] != ' ') continue;
            const CharacterClass before = class_before(text, at);
            if (before == CharacterClass::letter || before == CharacterClass::number) return at;
            continue;
        }
        const auto byte = static_cast<unsigned char>(text[at]);
        // Only a lead byte can begin a character, and ASCII spaces are frequent enough to wait for.
        if (byte < 0x80 && character_class(byte) == CharacterClass::space &&
            class_before(text, at) != CharacterClass::space)
            return at;
    }
    return text.size();
}

}  // namespace mantissa
