// Encoding: pieces, a cache of recent short pieces, and two ways to merge a piece.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <queue>

#include "mantissa/base/error.h"
#include "mantissa/data/tokenizer_split.h"
#include "mantissa/data/tokenizer_tables.h"
#include "mantissa/data/unicode.h"

namespace mantissa::inline v0 {

void merge_short_piece(std::span<const TokenId> piece, const PairTable& pairs, std::vector<TokenId>& ids) {
    // Remaining tokens, each with the merge with its right neighbour.
    std::array<TokenId, longest_short_piece> token;
    std::array<const PairTable::Entry*, longest_short_piece> joined;
    std::size_t count = piece.size();
    std::ranges::copy(piece, token.begin());
    for (std::size_t i = 0; i + 1 < count; ++i) joined[i] = &pairs.find(token[i], token[i + 1]);
    while (count > 1) {
        std::size_t best = 0;
        for (std::size_t i = 1; i + 1 < count; ++i)
            if (joined[i]->rank < joined[best]->rank) best = i;
        if (joined[best]->rank == PairTable::no_rank) break;
        token[best] = joined[best]->result;
        std::copy(token.begin() + best + 2, token.begin() + count, token.begin() + best + 1);
        if (best + 2 < count)
            std::copy(joined.begin() + best + 2, joined.begin() + count - 1, joined.begin() + best + 1);
        --count;
        if (best + 1 < count) joined[best] = &pairs.find(token[best], token[best + 1]);
        if (best > 0) joined[best - 1] = &pairs.find(token[best - 1], token[best]);
    }
    ids.insert(ids.end(), token.begin(), token.begin() + count);
}

namespace {

/// The tokens of a long piece as a doubly linked list over their first places.
class LinkedPiece {
  public:
    LinkedPiece(std::span<const TokenId> piece, const PairTable& pairs)
        : pairs_(pairs), links_(piece.size()) {
        check(piece.size() < none, "a piece is shorter than 4 GiB");
        for (std::uint32_t i = 0; i < links_.size(); ++i) links_[i] = {piece[i], i - 1, i + 1};
        links_.back().next = none;  // and links_[0].previous is 0 - 1 = none
        std::vector<std::uint64_t> first;
        first.reserve(piece.size());
        for (std::uint32_t i = 0; i + 1 < links_.size(); ++i) {
            const std::uint32_t rank = pairs_.find(links_[i].token, links_[i + 1].token).rank;
            if (rank != PairTable::no_rank) first.push_back(candidate(rank, i));
        }
        candidates_ = Candidates(std::greater<>{}, std::move(first));
    }

    void merge_all() {
        while (!candidates_.empty()) {
            const std::uint64_t top = candidates_.top();
            candidates_.pop();
            const auto at = static_cast<std::uint32_t>(top);
            Link& left = links_[at];
            if (left.token == gone || left.next == none) continue;
            const PairTable::Entry& merge = pairs_.find(left.token, links_[left.next].token);
            if (merge.rank != top >> 32) continue;  // one of the two was merged since
            join(at, merge.result);
        }
    }

    void append_to(std::vector<TokenId>& ids) const {
        for (std::uint32_t at = 0; at != none; at = links_[at].next) ids.push_back(links_[at].token);
    }

  private:
    using Candidates = std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>>;
    static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
    static constexpr TokenId gone = std::numeric_limits<TokenId>::max();

    struct Link {
        TokenId token;
        std::uint32_t previous, next;
    };

    /// Ordered by rank, then from left to right.
    static std::uint64_t candidate(std::uint32_t rank, std::uint32_t at) {
        return (std::uint64_t{rank} << 32) | at;
    }

    void join(std::uint32_t at, TokenId result) {
        Link& left = links_[at];
        Link& right = links_[left.next];
        left.token = result;
        right.token = gone;
        left.next = right.next;
        if (left.next != none) {
            links_[left.next].previous = at;
            offer(at);
        }
        if (left.previous != none) offer(left.previous);
    }

    void offer(std::uint32_t at) {
        const std::uint32_t rank = pairs_.find(links_[at].token, links_[links_[at].next].token).rank;
        if (rank != PairTable::no_rank) candidates_.push(candidate(rank, at));
    }

    const PairTable& pairs_;
    std::vector<Link> links_;
    Candidates candidates_;
};

}  // namespace

void merge_long_piece(std::span<const TokenId> piece, const PairTable& pairs, std::vector<TokenId>& ids) {
    LinkedPiece linked(piece, pairs);
    linked.merge_all();
    linked.append_to(ids);
}

namespace {

/// A piece of up to 16 bytes and its tokens, if there are 5 at most: 40 bytes.
struct CachedPiece {
    std::uint64_t low = 0, high = 0;  // the bytes, zeros after them
    std::uint8_t length = 0, count = 0;
    std::array<TokenId, 5> ids;
};

/// Masks of the first i bytes of a word.
constexpr auto first_bytes = [] {
    std::array<std::uint64_t, 9> words{};
    for (std::size_t i = 1; i < words.size(); ++i) words[i] = words[i - 1] << 8 | 0xFF;
    return words;
}();

struct PieceKey {
    std::uint64_t low = 0, high = 0;

    /// `readable` bytes can be read from the piece's beginning. If they are sixteen, whole words are read and
    /// masked: a copy of variable size costs more than all other work on a piece.
    PieceKey(std::string_view piece, std::size_t readable) {
        if (readable < 2 * sizeof(low)) {
            std::memcpy(&low, piece.data(), std::min<std::size_t>(piece.size(), 8));
            if (piece.size() > 8) std::memcpy(&high, piece.data() + 8, piece.size() - 8);
            return;
        }
        std::memcpy(&low, piece.data(), sizeof(low));
        std::memcpy(&high, piece.data() + sizeof(low), sizeof(high));
        low &= first_bytes[std::min<std::size_t>(piece.size(), 8)];
        high &= first_bytes[std::max<std::size_t>(piece.size(), 8) - 8];
    }
    std::uint64_t hash() const {
        return (low ^ std::rotl(high * 0x9E3779B97F4A7C15, 31)) * 0x9E3779B97F4A7C15;
    }
};

}  // namespace

struct Encoder::State {
    /// Directly mapped: a newer piece replaces an older one. 2^15 slots of 40 bytes are 1.3 MB, which fits a
    /// 2 MB L2 cache beside the text.
    static constexpr int slot_bits = 15;

    const Tokenizer::Tables* tables;
    std::vector<CachedPiece> cache = std::vector<CachedPiece>(std::size_t{1} << slot_bits);
    std::vector<TokenId> unmerged = {};  // of the current piece
    UnigramModel::Work unigram = {};
    bool plain = false;  // special tokens are read as text, as in the cache

    /// One token per byte; or per character, and per byte of a character without a token.
    void begin_piece(std::string_view piece) {
        unmerged.clear();
        const auto add_bytes = [&](std::string_view bytes) {
            for (const char byte : bytes)
                unmerged.push_back(tables->byte_tokens[static_cast<unsigned char>(byte)]);
        };
        if (tables->parts.byte_fallback.empty()) return add_bytes(piece);
        for (std::size_t at = 0; at < piece.size();) {
            const std::string_view character = piece.substr(at, decode_utf8(piece, at).length);
            const auto token = tables->by_bytes.find(character);
            if (token != tables->by_bytes.end())
                unmerged.push_back(token->second);
            else
                add_bytes(character);
            at += character.size();
        }
    }

    void merge(std::string_view piece, std::vector<TokenId>& ids) {
        if (!tables->parts.scores.empty()) return tables->unigram.encode(piece, plain, unigram, ids);
        if (tables->parts.whole_pieces) {
            if (const auto token = tables->by_bytes.find(piece); token != tables->by_bytes.end()) {
                ids.push_back(token->second);
                return;
            }
        }
        begin_piece(piece);
        const auto merge = unmerged.size() <= longest_short_piece ? merge_short_piece : merge_long_piece;
        merge(unmerged, tables->pairs, ids);
    }

    /// `readable` bytes can be read from the piece's beginning.
    [[gnu::always_inline]] void encode_piece(std::string_view piece, std::size_t readable,
                                             std::vector<TokenId>& ids) {
        if (piece.size() > 16) return merge(piece, ids);
        const PieceKey key(piece, readable);
        CachedPiece& slot = cache[key.hash() >> (64 - slot_bits)];
        if (slot.low == key.low && slot.high == key.high && slot.length == piece.size()) {
            if (slot.count == 1)  // the common case
                ids.push_back(slot.ids[0]);
            else
                ids.insert(ids.end(), slot.ids.begin(), slot.ids.begin() + slot.count);
            return;
        }
        const std::size_t before = ids.size();
        merge(piece, ids);
        const std::size_t count = ids.size() - before;
        if (count > slot.ids.size()) return;
        slot.low = key.low;
        slot.high = key.high;
        slot.length = static_cast<std::uint8_t>(piece.size());
        slot.count = static_cast<std::uint8_t>(count);
        std::copy(ids.begin() + before, ids.end(), slot.ids.begin());
    }

    /// Encodes a text without tokens to find, from one step of the cuts on.
    void encode_cut(std::size_t step, std::string_view text, TextPlace place, std::vector<TokenId>& ids) {
        const std::vector<CutStep>& cuts = tables->parts.pipeline.cuts;
        if (step == cuts.size()) return encode_piece(text, text.size(), ids);
        const CutStep& cut = cuts[step];
        std::string spaced, prefixed;
        if (cut.visible_spaces) text = with_plain_spaces(text, spaced);
        const bool wants =
            cut.prefix_space == PrefixSpace::unless_there ||
            (cut.prefix_space == PrefixSpace::unless_there_at_start && place == TextPlace::at_start);
        if (wants && place != TextPlace::continues && text[0] != ' ') {
            prefixed = ' ';
            prefixed += text;
            text = prefixed;
        }
        if (!cut.pattern) return encode_cut(step + 1, text, place, ids);
        if (step + 1 == cuts.size())
            return for_each_piece(cut, text, [&](std::string_view piece) {
                encode_piece(piece, static_cast<std::size_t>(text.end() - piece.begin()), ids);
            });
        for_each_piece(cut, text, [&](std::string_view piece) {
            const bool begins = piece.data() == text.data();
            encode_cut(step + 1, piece, begins ? place : TextPlace::behind_special, ids);
        });
    }

    /// Encodes a text that may hold tokens to find.
    void encode(std::string_view text, const EncodeOptions& options, std::vector<TokenId>& ids) {
        const auto is_end = [&](const SpecialToken& token) {
            return std::ranges::find(tables->parts.ends, token.id) != tables->parts.ends.end();
        };
        const auto wanted = [&](const SpecialToken& token, std::size_t, std::size_t) {
            return !token.on_request || options.specials == SpecialsInText::as_tokens ||
                   (options.specials == SpecialsInText::end_of_text_as_token && is_end(token));
        };
        if (plain != (options.specials != SpecialsInText::as_tokens)) {
            plain = !plain;
            if (!tables->parts.scores.empty()) cache.assign(cache.size(), {});
        }
        const bool finds = !tables->all_on_request || options.specials != SpecialsInText::as_text;
        TextPlace place = options.continues        ? TextPlace::continues
                          : options.behind_special ? TextPlace::behind_special
                                                   : TextPlace::at_start;
        std::string changed;
        const auto take = [&](const AddedTokens::Found& found) {
            ids.push_back(found.token->id);
            place =
                options.ends_apart && is_end(*found.token) ? TextPlace::at_start : TextPlace::behind_special;
        };
        const auto cut = [&](std::string_view plain) {
            encode_cut(0, plain, place, ids);
            place = TextPlace::behind_special;
        };
        const auto change = [&](std::string_view plain) {
            plain = normalize(tables->parts.pipeline, plain, place, changed);
            if (finds && !tables->normalized_tokens.empty())
                tables->normalized_tokens.for_each(plain, wanted, cut, take);
            else if (!plain.empty())
                cut(plain);
        };
        if (finds && !tables->raw_tokens.empty())
            tables->raw_tokens.for_each(text, wanted, change, take);
        else if (!text.empty())
            change(text);
    }
};

Encoder::Encoder(const Tokenizer& tokenizer)
    : state_(std::make_unique<State>(State{.tables = tokenizer.tables_.get()})) {}
Encoder::~Encoder() = default;
Encoder::Encoder(Encoder&&) noexcept = default;

void Encoder::encode(std::string_view text, std::vector<TokenId>& ids, const EncodeOptions& options) {
    state_->encode(text, options, ids);
}

}  // namespace mantissa
