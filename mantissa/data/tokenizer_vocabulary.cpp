#include "mantissa/data/tokenizer_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/data/tokenizer_alphabet.h"
#include "mantissa/data/unicode.h"
#include "mantissa/formats/strict_json.h"

namespace mantissa::inline v0 {

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

void SpelledVocabulary::add(const std::string& spelling, std::uint64_t id) {
    if (id >= static_cast<std::uint64_t>(std::numeric_limits<TokenId>::max()))
        fail(fmt::format("token {} has id {}, which is too large", quoted_excerpt(spelling), id));
    ids_.emplace(spelling, static_cast<TokenId>(id));
}

void SpelledVocabulary::add_all(const nlohmann::json& entries, const std::string& what) {
    if (!entries.is_object())
        fail(fmt::format("{}: expected an object of tokens and their ids, found {}", what,
                         json_excerpt(entries)));
    ids_.reserve(entries.size());
    for (const auto& [spelling, id] : entries.items()) {
        if (!id.is_number_unsigned())
            fail(fmt::format("{}: id of {}: expected an unsigned integer, found {}", what,
                             quoted_excerpt(spelling), json_excerpt(id)));
        add(spelling, id.get<std::uint64_t>());
    }
}

void SpelledVocabulary::add_special(const std::string& text, std::uint64_t id) {
    const auto known = ids_.find(text);
    if (known == ids_.end())
        add(text, id);
    else if (static_cast<std::uint64_t>(known->second) != id)
        fail(fmt::format("the special token {} has id {} here and {} in the vocabulary", quoted_excerpt(text),
                         id, known->second));
    specials_.push_back({text, static_cast<TokenId>(id)});
}

TokenId SpelledVocabulary::require(std::string_view spelling, const std::string& where) const {
    const auto token = ids_.find(spelling);
    if (token == ids_.end())
        fail(
            fmt::format("the tokenizer disagrees with itself: {} of the merges needs the token {}, which the "
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

std::vector<const std::string*> SpelledVocabulary::spellings_by_id() const {
    std::vector<const std::string*> spellings(ids_.size());
    for (const auto& [spelling, id] : ids_) {
        const auto place = static_cast<std::size_t>(id);
        if (place >= spellings.size())
            fail(fmt::format(
                "token {} has id {}, though there are {} tokens: ids must run from 0 without a gap",
                quoted_excerpt(spelling), id, spellings.size()));
        if (spellings[place])
            fail(fmt::format("id {} stands for both {} and {}", id,
                             quoted_excerpt(std::min(*spellings[place], spelling)),
                             quoted_excerpt(std::max(*spellings[place], spelling))));
        spellings[place] = &spelling;
    }
    return spellings;
}

TokenizerParts SpelledVocabulary::finish() && {
    const auto spellings = spellings_by_id();
    std::vector<bool> merged(spellings.size()), special(spellings.size());
    for (const Merge& merge : merges_) merged[merge.result] = true;
    for (const SpecialToken& token : specials_) special[token.id] = true;

    TokenizerParts parts;
    for (std::size_t id = 0; id < spellings.size(); ++id) {
        const std::string& spelling = *spellings[id];
        auto bytes = special[id] ? spelling : read_spelling(spelling);
        if (!special[id] && !merged[id] && in_angle_brackets(spelling)) {
            specials_.push_back({spelling, static_cast<TokenId>(id)});
            bytes = spelling;
        } else if (!bytes) {
            fail(fmt::format("token {} ({}) is not spelled in the byte-level alphabet", id,
                             quoted_excerpt(spelling)));
        } else if (!special[id] && !merged[id] && bytes->size() != 1) {
            fail(
                fmt::format("the tokenizer disagrees with itself: token {} ({}) is in the vocabulary but no "
                            "merge makes it",
                            id, quoted_excerpt(spelling)));
        }
        parts.tokens.push_back(std::move(*bytes));
    }
    parts.source = std::move(source_);
    parts.merges = std::move(merges_);
    parts.specials = std::move(specials_);
    return parts;
}

}  // namespace mantissa
