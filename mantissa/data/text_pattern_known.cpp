#include "mantissa/data/text_pattern_known.h"

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

template <int most_digits>
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
        for (int more = 0; more < most_digits - 1 && end < text.size(); ++more) {
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

constexpr std::string_view llama3_expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view qwen2_expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace

PieceEnd known_piece_end(std::string_view expression, Spaces spaces) {
    if (spaces != Spaces::plain) return nullptr;
    if (expression == gpt2_expression) return gpt2_piece_end;
    if (expression == llama3_expression) return llama3_piece_end<3>;
    return expression == qwen2_expression ? llama3_piece_end<1> : nullptr;
}

}  // namespace mantissa
