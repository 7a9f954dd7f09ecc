#include "mantissa/data/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "mantissa/base/error.h"
#include "mantissa/data/tokenizer_tables.h"
#include "mantissa/data/unicode.h"

namespace mantissa::inline v0 {

void PairTable::reserve(std::size_t pairs) {
    std::size_t size = 2;
    while (size < 2 * pairs + 2) size *= 2;
    slots_.assign(size, Entry{});
    mask_ = size - 1;
}

bool PairTable::insert(const Entry& entry) {
    Entry& slot = const_cast<Entry&>(find(entry.left, entry.right));
    if (slot.rank != no_rank) return false;
    slot = entry;
    return true;
}

namespace {

[[noreturn]] void disagree(const TokenizerParts& parts, const std::string& how) {
    throw UserError(fmt::format("{}: the tokenizer disagrees with itself: {}", parts.source, how));
}

/// Indexes the ordinary tokens by their bytes; true in `others` marks the rest.
std::unordered_map<std::string_view, TokenId> index_tokens(const TokenizerParts& parts,
                                                           const std::vector<bool>& others) {
    std::unordered_map<std::string_view, TokenId> index;
    index.reserve(parts.tokens.size());
    for (std::size_t id = 0; id < parts.tokens.size(); ++id) {
        if (others[id]) continue;
        if (parts.tokens[id].empty()) disagree(parts, fmt::format("token {} is empty", id));
        const auto [known, fresh] = index.emplace(parts.tokens[id], static_cast<TokenId>(id));
        if (!fresh) disagree(parts, fmt::format("tokens {} and {} are the same bytes", known->second, id));
    }
    return index;
}

bool within(TokenId id, std::size_t vocabulary) {
    return id >= 0 && static_cast<std::size_t>(id) < vocabulary;
}

/// The end tokens that its files name, without ids beyond the vocabulary: an unadapted configuration has
/// another tokenizer's ids. Otherwise a token with a well-known name.
std::vector<TokenId> ends_of(const TokenizerParts& parts) {
    std::vector<TokenId> ends;
    for (const TokenId id : parts.ends)
        if (within(id, parts.tokens.size()) && std::ranges::find(ends, id) == ends.end()) ends.push_back(id);
    if (!ends.empty()) return ends;
    for (const char* name : {"<|endoftext|>", "</s>", "<|end_of_text|>"})
        for (const SpecialToken& token : parts.specials)
            if (token.text == name) return {token.id};
    return {};
}

/// Marks tokens that are not ordinary: found in texts, and not made by merges.
std::vector<bool> mark_specials(const TokenizerParts& parts) {
    std::vector<bool> special(parts.tokens.size()), others(parts.tokens.size());
    for (const SpecialToken& token : parts.specials) {
        if (!within(token.id, special.size()))
            disagree(parts, fmt::format("the special token \"{}\" has id {}, outside the vocabulary of {}",
                                        token.text, token.id, special.size()));
        if (special[token.id])
            disagree(parts, fmt::format("token {} is special twice, as \"{}\" too", token.id, token.text));
        if (token.text.empty()) disagree(parts, fmt::format("special token {} is empty", token.id));
        special[token.id] = true;
        others[token.id] = !token.in_vocabulary;
    }
    return others;
}

void add_merges(const TokenizerParts& parts, PairTable& pairs) {
    const auto& tokens = parts.tokens;
    pairs.reserve(parts.merges.size());
    for (std::size_t rank = 0; rank < parts.merges.size(); ++rank) {
        const Merge& merge = parts.merges[rank];
        for (const TokenId id : {merge.left, merge.right, merge.result})
            if (!within(id, tokens.size()))
                disagree(parts, fmt::format("merge {} names token {}, outside the vocabulary", rank + 1, id));
        if (tokens[merge.left] + tokens[merge.right] != tokens[merge.result])
            disagree(parts, fmt::format("merge {} joins tokens {} and {}, which do not make up token {}",
                                        rank + 1, merge.left, merge.right, merge.result));
        if (!pairs.insert({merge.left, merge.right, merge.result, static_cast<std::uint32_t>(rank)}))
            disagree(parts, fmt::format("merge {} repeats an earlier merge", rank + 1));
    }
}

/// Makes every cut of a token into two tokens a merge of that token's rank.
void add_all_splits(const std::unordered_map<std::string_view, TokenId>& by_bytes, PairTable& pairs) {
    std::vector<PairTable::Entry> entries;
    for (const auto& [bytes, id] : by_bytes) {
        for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
            const auto left = by_bytes.find(bytes.substr(0, cut));
            if (left == by_bytes.end()) continue;
            const auto right = by_bytes.find(bytes.substr(cut));
            if (right != by_bytes.end())
                entries.push_back({left->second, right->second, id, static_cast<std::uint32_t>(id)});
        }
    }
    pairs.reserve(entries.size());
    for (const auto& entry : entries) pairs.insert(entry);
}

/// The tokens of single bytes: fallback tokens, or tokens of one byte.
std::array<TokenId, 256> find_byte_tokens(const TokenizerParts& parts,
                                          const std::unordered_map<std::string_view, TokenId>& by_bytes) {
    std::array<TokenId, 256> tokens{};
    if (!parts.byte_fallback.empty()) {
        check(parts.byte_fallback.size() == tokens.size(), "there are 256 bytes to fall back to");
        std::ranges::copy(parts.byte_fallback, tokens.begin());
        return tokens;
    }
    for (unsigned byte = 0; byte < 256; ++byte) {
        const char c = static_cast<char>(byte);
        const auto token = by_bytes.find(std::string_view(&c, 1));
        if (token == by_bytes.end())
            disagree(parts,
                     fmt::format("no token stands for the byte 0x{:02X}; a byte-level tokenizer has all 256",
                                 byte));
        tokens[byte] = token->second;
    }
    return tokens;
}

/// Whether an ordinary token has a space after another character: it could span a cut before spaces.
bool any_spans_a_space(const std::unordered_map<std::string_view, TokenId>& by_bytes) {
    return std::ranges::any_of(by_bytes, [](const auto& token) {
        const std::size_t first = token.first.find_first_not_of(' ');
        return first != token.first.npos && token.first.find(' ', first) != token.first.npos;
    });
}

/// Adds a cut before spaces if merges begin with characters and nothing else cuts the text. No token spans
/// the cut, so pieces are short and recur.
void add_cut_before_spaces(const std::unordered_map<std::string_view, TokenId>& by_bytes,
                           TokenizerParts& parts) {
    const auto cuts = [](const CutStep& step) { return step.pattern.has_value(); };
    if (parts.byte_fallback.empty() || !parts.scores.empty() || parts.whole_pieces ||
        std::ranges::any_of(parts.pipeline.cuts, cuts) || any_spans_a_space(by_bytes))
        return;
    static const TextPattern spaces = *TextPattern::of_expression(" +");
    parts.pipeline.cuts.push_back({.pattern = spaces, .behavior = CutStep::Behavior::merged_with_next});
}

}  // namespace

void Tokenizer::add_tokens_in_texts(Tables& tables) {
    tables.safe_cuts = SafeCuts(tables.parts.pipeline);
    std::vector<std::pair<std::string, const SpecialToken*>> raw, normalized, requested;
    std::string changed;
    for (const SpecialToken& token : tables.parts.specials) {
        const std::string_view text =
            token.normalized ? normalize(tables.parts.pipeline, token.text, TextPlace::at_start, changed)
                             : token.text;
        if (!text.empty()) (token.normalized ? normalized : raw).emplace_back(text, &token);
        if (token.on_request) requested.emplace_back(token.text, &token);
        tables.safe_cuts.leave_whole(token.text, token.takes_spaces_behind, tables.parts.pipeline);
        tables.safe_cuts.leave_whole(text, token.takes_spaces_behind, tables.parts.pipeline);
        tables.all_on_request &= token.on_request;
    }
    tables.raw_tokens = AddedTokens(std::move(raw));
    tables.normalized_tokens = AddedTokens(std::move(normalized));
    tables.requested = AddedTokens(std::move(requested));
}

Tokenizer::Tokenizer(TokenizerParts parts) {
    auto tables = std::make_unique<Tables>();
    tables->parts = std::move(parts);
    const TokenizerParts& kept = tables->parts;
    check(kept.tokens.size() < std::numeric_limits<TokenId>::max(), "token ids fit in 31 bits");
    std::vector<bool> others = mark_specials(kept);
    tables->parts.ends = ends_of(kept);
    for (const auto& [ids, how] :
         {std::pair(&kept.first_tokens, "begin"), std::pair(&kept.last_tokens, "end")})
        for (const TokenId id : *ids)
            if (!within(id, kept.tokens.size()))
                disagree(kept, fmt::format("texts {} with token {}, outside the vocabulary of {}", how, id,
                                           kept.tokens.size()));
    for (const TokenId id : kept.byte_fallback) others[id] = true;
    if (kept.scores.empty()) {
        tables->by_bytes = index_tokens(kept, others);
        tables->byte_tokens = find_byte_tokens(kept, tables->by_bytes);
        add_cut_before_spaces(tables->by_bytes, tables->parts);
    }
    add_tokens_in_texts(*tables);
    if (!kept.scores.empty())
        tables->unigram = UnigramModel(kept);
    else if (kept.rank_is_id)
        add_all_splits(tables->by_bytes, tables->pairs);
    else
        add_merges(kept, tables->pairs);
    tables_ = std::move(tables);
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

const TokenizerParts& Tokenizer::parts() const { return tables_->parts; }

const SafeCuts& Tokenizer::safe_cuts() const { return tables_->safe_cuts; }

TokenId Tokenizer::vocabulary() const { return static_cast<TokenId>(tables_->parts.tokens.size()); }

std::optional<TokenId> Tokenizer::special(std::string_view text) const {
    for (const SpecialToken& token : tables_->parts.specials)
        if (token.text == text) return token.id;
    return std::nullopt;
}

std::vector<Tokenizer::FoundSpecial> Tokenizer::find_specials(
    std::string_view text, FunctionRef<bool(std::size_t begin, std::size_t end)> allowed) const {
    std::vector<FoundSpecial> found;
    tables_->requested.for_each(
        text, [&](const SpecialToken&, std::size_t begin, std::size_t end) { return allowed(begin, end); },
        [](std::string_view) {},
        [&](const AddedTokens::Found& token) {
            found.push_back({token.begin, token.end, token.token->id});
        });
    return found;
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
    std::vector<TokenId> ids;
    Encoder(*this).encode(text, ids, options);
    return ids;
}

std::vector<TokenId> Tokenizer::encode_whole(std::string_view text, const TextReading& reading) const {
    const std::span<const TokenId> first = first_tokens(reading);
    std::vector<TokenId> ids(first.begin(), first.end());
    Encoder(*this).encode(text, ids, {.specials = reading.specials});
    return ids;
}

std::span<const TokenId> Tokenizer::first_tokens(const TextReading& reading) const {
    return reading.begins ? std::span<const TokenId>(parts().first_tokens) : std::span<const TokenId>();
}

std::span<const TokenId> Tokenizer::last_tokens(const TextReading& reading) const {
    return reading.begins ? std::span<const TokenId>(parts().last_tokens) : std::span<const TokenId>();
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
    if (id < 0 || id >= vocabulary())
        throw UserError(
            fmt::format("token {} is outside the vocabulary of {} ({}): the tokens were made with "
                        "another tokenizer",
                        id, vocabulary(), tables_->parts.source));
    return tables_->parts.tokens[id];
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
    std::string text;
    bool first = true;
    for (const TokenId id : ids) {
        text += token_bytes(id);
        if (first && parts().first_space == FirstSpace::all_of_token_dropped) std::erase(text, ' ');
        first = false;
    }
    if (parts().first_space == FirstSpace::one_dropped && text.starts_with(' ')) text.erase(0, 1);
    return text;
}

std::string StreamDecoder::push(TokenId id) {
    held_ += tokenizer_->token_bytes(id);
    std::string text;
    std::size_t at = 0;
    while (at < held_.size()) {
        const Utf8Step step = decode_utf8(held_, at);
        if (step.cut_short) break;
        if (step.code_point == Utf8Step::invalid)
            text += "\xEF\xBF\xBD";
        else
            text.append(held_, at, step.length);
        at += step.length;
    }
    held_.erase(0, at);
    return text;
}

std::string StreamDecoder::finish() {
    // Held bytes are one incomplete sequence, so one replacement.
    const bool pending = !held_.empty();
    held_.clear();
    return pending ? "\xEF\xBF\xBD" : "";
}

}  // namespace mantissa
