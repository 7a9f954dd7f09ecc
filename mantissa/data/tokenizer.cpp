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

/// The ends that its files name, but for ids beyond the vocabulary, which stand for no token: a configuration
/// that nobody adapted has those of another tokenizer. Else the one that has a well-known name.
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

std::vector<bool> mark_specials(const TokenizerParts& parts) {
    std::vector<bool> special(parts.tokens.size());
    for (const SpecialToken& token : parts.specials) {
        if (!within(token.id, special.size()))
            disagree(parts, fmt::format("the special token \"{}\" has id {}, outside the vocabulary of {}",
                                        token.text, token.id, special.size()));
        if (special[token.id])
            disagree(parts, fmt::format("token {} is special twice, as \"{}\" too", token.id, token.text));
        if (token.text.empty()) disagree(parts, fmt::format("special token {} is empty", token.id));
        special[token.id] = true;
    }
    return special;
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

/// Every way to cut a token into two tokens is a merge of that token's rank.
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

/// The tokens of single bytes: those of the fallback, or those that are a byte.
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

/// Whether an ordinary token holds a space behind something else: then it could span a cut before spaces.
bool any_spans_a_space(const std::unordered_map<std::string_view, TokenId>& by_bytes) {
    return std::ranges::any_of(by_bytes, [](const auto& token) {
        const std::size_t first = token.first.find_first_not_of(' ');
        return first != token.first.npos && token.first.find(' ', first) != token.first.npos;
    });
}

}  // namespace

Tokenizer::Tokenizer(TokenizerParts parts) {
    auto tables = std::make_unique<Tables>();
    tables->parts = std::move(parts);
    const TokenizerParts& kept = tables->parts;
    check(kept.tokens.size() < std::numeric_limits<TokenId>::max(), "token ids fit in 31 bits");
    std::vector<bool> others = mark_specials(kept);
    tables->parts.ends = ends_of(kept);
    for (const TokenId id : kept.first_tokens)
        if (!within(id, kept.tokens.size()))
            disagree(kept, fmt::format("texts begin with token {}, outside the vocabulary of {}", id,
                                       kept.tokens.size()));
    for (const TokenId id : kept.byte_fallback) others[id] = true;
    tables->by_bytes = index_tokens(kept, others);
    tables->byte_tokens = find_byte_tokens(kept, tables->by_bytes);
    if (kept.split == Split::nowhere && !any_spans_a_space(tables->by_bytes))
        tables->parts.split = Split::before_spaces;
    if (kept.rank_is_id)
        add_all_splits(tables->by_bytes, tables->pairs);
    else
        add_merges(kept, tables->pairs);
    tables_ = std::move(tables);
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

const TokenizerParts& Tokenizer::parts() const { return tables_->parts; }

TokenId Tokenizer::vocabulary() const { return static_cast<TokenId>(tables_->parts.tokens.size()); }

std::optional<TokenId> Tokenizer::special(std::string_view text) const {
    for (const SpecialToken& token : tables_->parts.specials)
        if (token.text == text) return token.id;
    return std::nullopt;
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
    for (const TokenId id : ids) text += token_bytes(id);
    if (parts().strip_first_space && text.starts_with(' ')) text.erase(0, 1);
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
    // The bytes that are held back are one sequence cut short, so one replacement.
    const bool pending = !held_.empty();
    held_.clear();
    return pending ? "\xEF\xBF\xBD" : "";
}

}  // namespace mantissa
