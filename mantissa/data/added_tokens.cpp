#include "mantissa/data/added_tokens.h"

#include <algorithm>

#include "mantissa/data/unicode.h"

namespace mantissa::inline v0 {

namespace {

bool is_space(std::string_view text, std::size_t at) {
    return character_class(decode_utf8(text, at).code_point) == CharacterClass::space;
}

/// As \w of Rust's regular expressions: Alphabetic, marks, decimal digits, connectors and joiners.
bool is_word(std::string_view text, std::size_t at) {
    static const CategorySet words = categories_of("L") | categories_of("M") | categories_of("Nd") |
                                     categories_of("Nl") | categories_of("Pc");
    const char32_t c = decode_utf8(text, at).code_point;
    const auto within = [c](char32_t first, char32_t last) { return c >= first && c <= last; };
    return (words >> category_of(c) & 1) != 0 || within(0x200C, 0x200D) || within(0x24B6, 0x24E9) ||
           within(0x1F130, 0x1F149) || within(0x1F150, 0x1F169) || within(0x1F170, 0x1F189);
}

bool is_single_word(std::string_view text, std::size_t begin, std::size_t end) {
    return (begin == 0 || !is_word(text.substr(0, begin), character_before(text, begin))) &&
           (end == text.size() || !is_word(text, end));
}

}  // namespace

AddedTokens::AddedTokens(std::vector<std::pair<std::string, const SpecialToken*>> tokens)
    : tokens_(std::move(tokens)) {
    std::ranges::sort(tokens_);
    for (const auto& [text, token] : tokens_) begins_[static_cast<unsigned char>(text[0])] = true;
    first_bytes_ = static_cast<int>(std::ranges::count(begins_, true));
}

AddedTokens::Found AddedTokens::next(std::string_view text, std::size_t from, Wanted wanted) const {
    for (std::size_t at = from; at < text.size(); ++at) {
        if (first_bytes_ == 1) at = std::min(text.find(tokens_[0].first[0], at), text.size() - 1);
        if (!begins_[static_cast<unsigned char>(text[at])]) continue;
        // The first of the texts that go on as this one does is the shortest.
        auto first = tokens_.begin(), last = tokens_.end();
        Found found;
        for (std::size_t length = 1; first != last && at + length <= text.size(); ++length) {
            const auto byte = static_cast<unsigned char>(text[at + length - 1]);
            const auto byte_of = [&](const auto& token) {
                return token.first.size() < length ? -1 : static_cast<unsigned char>(token.first[length - 1]);
            };
            first = std::ranges::lower_bound(first, last, byte, {}, byte_of);
            last = std::ranges::upper_bound(first, last, byte, {}, byte_of);
            if (first != last && first->first.size() == length && wanted(*first->second, at, at + length))
                found = {at, at + length, first->second};
        }
        if (found.token) return found;
    }
    return {};
}

void AddedTokens::for_each(std::string_view text, Wanted wanted, FunctionRef<void(std::string_view)> plain,
                           FunctionRef<void(const Found&)> token) const {
    std::size_t done = 0;
    for (Found found = next(text, 0, wanted); found.token; found = next(text, found.end, wanted)) {
        if (found.token->single_word && !is_single_word(text, found.begin, found.end)) continue;
        std::size_t begin = found.begin, end = found.end;
        if (found.token->takes_spaces_before)
            while (begin > done && is_space(text, character_before(text, begin)))
                begin = character_before(text, begin);
        if (found.token->takes_spaces_behind)
            while (end < text.size() && is_space(text, end)) end += decode_utf8(text, end).length;
        if (done < begin) plain(text.substr(done, begin - done));
        token({begin, end, found.token});
        done = end;  // which may lie behind the beginning of the next
    }
    if (done < text.size()) plain(text.substr(done));
}

}  // namespace mantissa
