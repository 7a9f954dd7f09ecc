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

}  // namespace

std::size_t piece_end(std::string_view text, std::size_t begin) {
    if (text[begin] == '\'') {
        if (const std::size_t length = contraction_length(text, begin)) return begin + length;
    }
    std::size_t at = begin;
    if (text[begin] == ' ' && begin + 1 < text.size()) ++at;
    const Character first = character_at(text, at);
    if (first.kind == CharacterClass::space) return space_end(text, begin);
    return run_end(text, at + first.length, first.kind);
}

std::size_t safe_cut(std::string_view text, std::size_t wanted) {
    for (std::size_t at = std::max<std::size_t>(wanted, 1); at < text.size(); ++at) {
        const auto byte = static_cast<unsigned char>(text[at]);
        // Only a lead byte can begin a character, and ASCII spaces are frequent enough to wait for.
        if (byte < 0x80 && character_class(byte) == CharacterClass::space &&
            class_before(text, at) != CharacterClass::space)
            return at;
    }
    return text.size();
}

}  // namespace mantissa
