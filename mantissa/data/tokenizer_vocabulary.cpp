#include "mantissa/data/tokenizer_vocabulary.h"

#include <fmt/format.h>

#include "mantissa/base/error.h"
#include "mantissa/data/tokenizer_alphabet.h"
#include "mantissa/data/unicode.h"

namespace mantissa {

std::string quoted_excerpt(std::string_view text) {
    constexpr std::size_t longest = 40;
    std::string shown = "\"";
    for (std::size_t at = 0; at < text.size();) {
        if (at >= longest) {
            shown += "...";
            break;
        }
        const Utf8Step step = decode_utf8(text, at);
        if (step.code_point == Utf8Step::invalid || step.code_point < 0x20 || step.code_point == 0x7F) {
            for (std::size_t i = 0; i < step.length; ++i)
                shown += fmt::format("\\x{:02X}", static_cast<unsigned char>(text[at + i]));
        } else {
            shown += text.substr(at, step.length);
        }
        at += step.length;
    }
    return shown + "\"";
}

void SpelledVocabulary::fail(const std::string& what) const {
    throw UserError(fmt::format("{}: {}", source_, what));
}

void SpelledVocabulary::add(std::string spelling, std::uint64_t id) {
    if (id >= id_limit)
        fail(fmt::format("token {} has id {}; ids must be below {}", quoted_excerpt(spelling), id, id_limit));
    const auto token = static_cast<TokenId>(id);
    const auto [place, fresh] = spellings_.emplace(token, spelling);
    if (!fresh)
        fail(fmt::format("id {} stands for both {} and {}", id, quoted_excerpt(place->second),
                         quoted_excerpt(spelling)));
    ids_.emplace(std::move(spelling), token);
}

void SpelledVocabulary::add_special(const std::string& text, std::uint64_t id) {
    const auto known = ids_.find(text);
    if (known == ids_.end())
        add(text, id);
    else if (known->second != id)
        fail(fmt::format("the special token {} has id {} here and {} in the vocabulary", quoted_excerpt(text), id,
                         known->second));
    if (specials_.emplace(static_cast<TokenId>(id), text).second)
        specials_in_order_.push_back(static_cast<TokenId>(id));
}

TokenId SpelledVocabulary::require(std::string_view spelling, const std::string& where) const {
    const auto token = ids_.find(std::string(spelling));
    if (token == ids_.end())
        fail(fmt::format("the tokenizer disagrees with itself: {} of the merges needs the token {}, which the "
                         "vocabulary lacks",
                         where, quoted_excerpt(spelling)));
    return token->second;
}

void SpelledVocabulary::add_merge(std::string_view left, std::string_view right, const std::string& where) {
    std::string joined(left);
    joined += right;
    merges_.push_back({require(left, where), require(right, where), require(joined, where)});
}

namespace {

bool in_angle_brackets(std::string_view spelling) {
    return spelling.size() > 2 && spelling.front() == '<' && spelling.back() == '>';
}

}  // namespace

TokenizerParts SpelledVocabulary::finish() && {
    TokenizerParts parts;
    const std::size_t count = spellings_.size();
    std::vector<bool> merged(count);
    for (const Merge& merge : merges_)
        if (merge.result < count) merged[merge.result] = true;
    parts.tokens.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
        const auto id = static_cast<TokenId>(i);
        const auto entry = spellings_.find(id);
        if (entry == spellings_.end())
            fail(fmt::format("no token has id {}, though there are {} tokens: ids must run from 0 without a gap", id,
                             count));
        const std::string& spelling = entry->second;
        if (specials_.contains(id)) {
            parts.tokens[id] = spelling;
            continue;
        }
        const auto bytes = read_spelling(spelling);
        if (bytes && (bytes->size() == 1 || merged[id])) {
            parts.tokens[id] = *bytes;
        } else if (in_angle_brackets(spelling) && !merged[id]) {
            parts.tokens[id] = spelling;
            specials_.emplace(id, spelling);
            specials_in_order_.push_back(id);
        } else if (!bytes) {
            fail(fmt::format("token {} ({}) is not spelled in the byte-level alphabet", id,
                             quoted_excerpt(spelling)));
        } else {
            fail(fmt::format("the tokenizer disagrees with itself: token {} ({}) is in the vocabulary but no "
                             "merge makes it",
                             id, quoted_excerpt(spelling)));
        }
    }
    for (const TokenId id : specials_in_order_) parts.specials.push_back({specials_.at(id), id});
    parts.source = std::move(source_);
    parts.merges = std::move(merges_);
    return parts;
}

}  // namespace mantissa
