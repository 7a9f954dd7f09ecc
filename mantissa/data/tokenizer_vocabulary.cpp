#include "mantissa/data/tokenizer_vocabulary.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include "mantissa/base/error.h"
#include "mantissa/data/text_file.h"
#include "mantissa/data/tokenizer_alphabet.h"
#include "mantissa/data/tokenizer_files.h"
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

void SpelledVocabulary::add_next(const std::string& spelling) {
    const auto [known, fresh] = ids_.emplace(spelling, static_cast<TokenId>(ids_.size()));
    if (!fresh)
        fail(fmt::format("tokens {} and {} are both {}", known->second, ids_.size(),
                         quoted_excerpt(spelling)));
}

void SpelledVocabulary::add_special(const SpecialToken& token) {
    const auto known = ids_.find(token.text);
    if (known == ids_.end())
        add(token.text, static_cast<std::uint64_t>(token.id));
    else if (known->second != token.id)
        fail(fmt::format("the special token {} has id {} here and {} in the vocabulary",
                         quoted_excerpt(token.text), token.id, known->second));
    specials_.push_back(token);
    specials_.back().in_vocabulary = known != ids_.end();
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

std::string SpelledVocabulary::bytes_of_token(std::size_t id, const std::string& spelling,
                                              bool may_stand_alone) const {
    auto bytes = read_spelling(spelling);
    if (!bytes)
        fail(fmt::format("token {} ({}) is not spelled in the byte-level alphabet", id,
                         quoted_excerpt(spelling)));
    if (!may_stand_alone && bytes->size() != 1)
        fail(
            fmt::format("the tokenizer disagrees with itself: token {} ({}) is in the vocabulary but no "
                        "merge makes it",
                        id, quoted_excerpt(spelling)));
    return *bytes;
}

namespace {

/// The byte of "<0x0A>"; none for other texts.
std::optional<unsigned> byte_of(std::string_view spelling) {
    if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling[5] != '>') return std::nullopt;
    unsigned byte = 0;
    const char* const last = spelling.data() + 5;
    const auto [end, error] = std::from_chars(spelling.data() + 3, last, byte, 16);
    return error == std::errc{} && end == last ? std::optional(byte) : std::nullopt;
}

bool is_text(SpelledVocabulary::Spelling spelling) {
    using enum SpelledVocabulary::Spelling;
    return spelling == text || spelling == text_and_bytes;
}

}  // namespace

std::string decoded_added_token(std::string_view text, SpelledVocabulary::Spelling spelling) {
    std::string spaced;
    if (is_text(spelling)) return std::string(with_plain_spaces(text, spaced));
    return read_spelling(text).value_or(std::string(text));
}

void SpelledVocabulary::read_text(const std::vector<const std::string*>& spellings,
                                  const std::vector<bool>& added, Spelling spelled,
                                  TokenizerParts& parts) const {
    if (spelled == Spelling::text_and_bytes) parts.byte_fallback.assign(256, -1);
    for (std::size_t id = 0; id < spellings.size(); ++id) {
        const std::string& spelling = *spellings[id];
        if (added[id]) {
            parts.tokens.push_back(decoded_added_token(spelling, Spelling::text));
        } else if (const auto byte = byte_of(spelling); byte && !parts.byte_fallback.empty()) {
            parts.byte_fallback[*byte] = static_cast<TokenId>(id);
            parts.tokens.emplace_back(1, static_cast<char>(*byte));
        } else {
            if (spelling.find(' ') != spelling.npos)
                fail(fmt::format("token {} ({}) holds a space, which is spelled U+2581", id,
                                 quoted_excerpt(spelling)));
            std::string spaced;
            parts.tokens.emplace_back(with_plain_spaces(spelling, spaced));
        }
    }
    for (std::size_t byte = 0; byte < parts.byte_fallback.size(); ++byte)
        if (parts.byte_fallback[byte] < 0)
            fail(fmt::format("byte_fallback needs a token for every byte, and <0x{:02X}> is missing", byte));
}

TokenizerParts SpelledVocabulary::finish(Spelling spelled) && {
    const auto spellings = spellings_by_id();
    std::vector<bool> merged(spellings.size()), added(spellings.size());
    for (const Merge& merge : merges_) merged[merge.result] = true;
    for (SpecialToken& token : specials_) {
        added[token.id] = true;
        // Merges make neither unspellable nor special tokens.
        const bool can_be_spelled = is_text(spelled) ? token.text.find(' ') == std::string::npos
                                                     : read_spelling(token.text).has_value();
        token.in_vocabulary &= can_be_spelled && !token.on_request;
    }

    TokenizerParts parts;
    if (is_text(spelled)) read_text(spellings, added, spelled, parts);
    for (std::size_t id = 0; !is_text(spelled) && id < spellings.size(); ++id) {
        const std::string& spelling = *spellings[id];
        if (spelled == Spelling::pair && !added[id] && !merged[id] && in_angle_brackets(spelling)) {
            specials_.push_back({spelling, static_cast<TokenId>(id)});
            added[id] = true;
        }
        parts.tokens.push_back(added[id]
                                   ? decoded_added_token(spelling, spelled)
                                   : bytes_of_token(id, spelling, merged[id] || spelled == Spelling::bytes));
    }
    parts.source = std::move(source_);
    parts.merges = std::move(merges_);
    parts.specials = std::move(specials_);
    return parts;
}

namespace {

struct RankLine {
    std::string bytes;
    std::uint64_t rank;
};

std::optional<RankLine> read_line(std::string_view line) {
    const std::size_t space = line.find(' ');
    if (space == line.npos) return std::nullopt;
    auto bytes = decode_base64(line.substr(0, space));
    const std::string_view digits = line.substr(space + 1);
    std::uint64_t rank = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (!bytes || parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size())
        return std::nullopt;
    return RankLine{std::move(*bytes), rank};
}

/// Refuses vocabularies known to have another split rule; the number of lines identifies them.
void refuse_other_split_rules(const NamedText& ranks, std::size_t lines) {
    struct Known {
        std::size_t lines;
        const char* name;
    };
    constexpr std::array<Known, 3> others = {
        {{100256, "cl100k_base"}, {199998, "o200k_base"}, {128000, "Llama 3"}}};
    for (const Known& known : others)
        if (lines == known.lines)
            throw UserError(
                fmt::format("{}: {} tokens are those of {}, which splits text by another rule than "
                            "GPT-2's; this format says no rule: use its tokenizer.json",
                            ranks.name, lines, known.name));
}

}  // namespace

TokenizerParts read_tiktoken(const NamedText& ranks) {
    TokenizerParts parts;
    parts.source = ranks.name;
    parts.rank_is_id = parts.whole_pieces = true;
    std::size_t lines = 0;
    std::size_t number = 0;
    for (const std::string_view text : lines_of(ranks.text)) {
        ++number;
        if (text.empty()) continue;
        auto line = read_line(text);
        if (!line)
            throw UserError(
                fmt::format("{}: line {}: expected a token in base64, a space and its rank, found {}",
                            ranks.name, number, quoted_excerpt(text)));
        if (line->rank < parts.tokens.size())
            throw UserError(fmt::format("{}: line {}: rank {} is not above the one before it", ranks.name,
                                        number, line->rank));
        // One rank may be missing, for the special token; a second gap is found below.
        if (line->rank > lines + 1)
            throw UserError(fmt::format("{}: line {}: rank {} where {} was expected", ranks.name, number,
                                        line->rank, parts.tokens.size()));
        parts.tokens.resize(line->rank + 1);
        parts.tokens.back() = std::move(line->bytes);
        ++lines;
    }
    refuse_other_split_rules(ranks, lines);
    std::size_t unused = 0;
    while (unused < parts.tokens.size() && !parts.tokens[unused].empty()) ++unused;
    if (unused == parts.tokens.size()) parts.tokens.emplace_back();
    parts.tokens[unused] = "<|endoftext|>";
    parts.specials.push_back({"<|endoftext|>", static_cast<TokenId>(unused)});
    return parts;
}

Tokenizer parse_tiktoken(const NamedText& ranks) { return Tokenizer(read_tiktoken(ranks)); }

}  // namespace mantissa
