#include "mantissa/data/tokenizer_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/data/unicode.h"

namespace mantissa::inline v0 {

UnigramModel::UnigramModel(const TokenizerParts& parts) : parts_(&parts), on_request_(parts.tokens.size()) {
    // In texts, a byte's token is matched by its spelling.
    std::vector<std::pair<std::string, TokenId>> spellings;
    for (std::size_t id = 0; id < parts.scores.size(); ++id)
        spellings.emplace_back(parts.tokens[id], static_cast<TokenId>(id));
    for (std::size_t byte = 0; byte < parts.byte_fallback.size(); ++byte)
        spellings[static_cast<std::size_t>(parts.byte_fallback[byte])].first =
            fmt::format("<0x{:02X}>", byte);
    std::ranges::sort(spellings);
    std::size_t nodes = 0;
    std::string_view last;
    for (const auto& [spelling, id] : spellings) {
        const auto shared = std::ranges::mismatch(spelling, last).in1 - spelling.begin();
        nodes += spelling.size() - static_cast<std::size_t>(shared);
        last = spelling;
    }
    check(nodes < std::numeric_limits<TokenId>::max(), "the nodes of a vocabulary are numbered in 31 bits");
    edges_.reserve(nodes);
    tokens_.push_back(none);
    for (const auto& [spelling, id] : spellings) add(spelling, id);
    for (const SpecialToken& token : parts.specials) on_request_[token.id] = token.on_request;
    constexpr double penalty = 10;  // as in SentencePiece
    unknown_score_ = std::ranges::min(parts.scores) - penalty;
}

void UnigramModel::add(std::string_view spelling, TokenId token) {
    TokenId node = 0;
    for (const char c : spelling) {
        const auto byte = static_cast<unsigned char>(c);
        const PairTable::Entry& edge = edges_.find(node, byte);
        if (edge.rank != PairTable::no_rank) {
            node = edge.result;
            continue;
        }
        const auto fresh = static_cast<TokenId>(tokens_.size());
        edges_.insert({node, byte, fresh, 0});
        tokens_.push_back(none);
        node = fresh;
    }
    TokenId& there = tokens_[node];
    if (there != none)
        throw UserError(
            fmt::format("{}: the tokenizer disagrees with itself: tokens {} and {} are the same text",
                        parts_->source, std::min(there, token), std::max(there, token)));
    there = token;
}

template <class Found>
void UnigramModel::for_each_token(std::string_view text, std::size_t begin, bool plain, Found&& found) const {
    TokenId node = 0;
    for (std::size_t at = begin; at < text.size();) {
        const PairTable::Entry& edge = edges_.find(node, static_cast<unsigned char>(text[at]));
        if (edge.rank == PairTable::no_rank) return;
        node = edge.result;
        ++at;
        if (const TokenId token = tokens_[node]; token != none && !(plain && on_request_[token]))
            found(at, token);
    }
}

void UnigramModel::encode(std::string_view piece, bool plain, Work& work, std::vector<TokenId>& ids) const {
    using Best = Work::Best;
    constexpr std::uint32_t nowhere = std::numeric_limits<std::uint32_t>::max();
    check(piece.size() < nowhere, "a piece is shorter than 4 GiB");
    const TokenId unknown = *parts_->unknown;
    std::vector<Best>& best = work.best;
    best.assign(piece.size() + 1, {0, nowhere, none});
    for (std::size_t begin = 0, length = 0; begin < piece.size(); begin += length) {
        const double score = best[begin].score;
        length = decode_utf8(piece, begin).length;
        bool has_single = false;
        const auto offer = [&](std::size_t end, TokenId token, double of_token) {
            const double sum = of_token + score;
            if (best[end].begin == nowhere || sum > best[end].score)
                best[end] = {sum, static_cast<std::uint32_t>(begin), token};
        };
        for_each_token(piece, begin, plain, [&](std::size_t end, TokenId token) {
            offer(end, token, parts_->scores[token]);
            has_single |= end == begin + length;
        });
        if (!has_single) offer(begin + length, unknown, unknown_score_);
    }
    // Traced back from the end; tokens are stored in order.
    std::size_t count = 0;
    for (std::size_t end = piece.size(); end > 0; end = best[end].begin) ++count;
    std::size_t end = piece.size(), place = piece.size();
    for (; count > 0; --count) {
        const Best last = best[end];
        best[place--] = {0, static_cast<std::uint32_t>(end), last.token};
        end = last.begin;
    }
    std::size_t unknown_from = 0, behind = 0;
    const auto end_unknown = [&] {
        if (unknown_from < behind)
            append_unknown(piece.substr(unknown_from, behind - unknown_from), plain, ids);
    };
    for (++place; place <= piece.size(); ++place) {
        if (best[place].token != unknown) {
            end_unknown();
            ids.push_back(best[place].token);
            unknown_from = best[place].begin;
        }
        behind = best[place].begin;
    }
    end_unknown();
}

/// Appends unknown characters in a row: as one token if it exists, else as bytes or unknown.
void UnigramModel::append_unknown(std::string_view part, bool plain, std::vector<TokenId>& ids) const {
    TokenId whole = none;
    for_each_token(part, 0, plain, [&](std::size_t end, TokenId token) {
        if (end == part.size()) whole = token;
    });
    if (whole != none || parts_->byte_fallback.empty()) {
        ids.push_back(whole != none ? whole : *parts_->unknown);
        return;
    }
    for (const char byte : part) ids.push_back(parts_->byte_fallback[static_cast<unsigned char>(byte)]);
}

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
        // The texts with this beginning; the first is the shortest.
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
        done = end;  // may exceed the next token's beginning
    }
    if (done < text.size()) plain(text.substr(done));
}

}  // namespace mantissa
