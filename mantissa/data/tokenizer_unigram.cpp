#include "mantissa/data/tokenizer_unigram.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/data/unicode.h"

namespace mantissa::inline v0 {

UnigramModel::UnigramModel(const TokenizerParts& parts) : parts_(&parts), on_request_(parts.tokens.size()) {
    // In a text a token of a byte is what it is spelled as.
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
    constexpr double penalty = 10;  // as SentencePiece's
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
    // Back from the end; the tokens are put into their places from the front again.
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

/// Unknown characters in a row: the token that they are as a whole, or the bytes that they are, or unknown.
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

}  // namespace mantissa
