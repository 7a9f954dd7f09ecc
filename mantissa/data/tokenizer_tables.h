// The tables of Tokenizer and Encoder, the search for tokens before a text is cut, and Unigram's model of a
// piece. Internal to data/tokenizer*.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mantissa/base/function_ref.h"
#include "mantissa/data/tokenizer.h"

namespace mantissa::inline v0 {

/// Maps a pair of neighbouring tokens to the merge that joins them. Open addressing, at most half full.
class PairTable {
  public:
    static constexpr std::uint32_t no_rank = std::numeric_limits<std::uint32_t>::max();

    struct Entry {
        TokenId left = 0, right = 0, result = 0;
        std::uint32_t rank = no_rank;  // also marks a free slot
    };

    void reserve(std::size_t pairs);
    /// False if the pair exists already.
    bool insert(const Entry& entry);

    /// The entry of the pair; its rank is no_rank if these two do not merge.
    const Entry& find(TokenId left, TokenId right) const {
        std::size_t slot = slot_of(left, right);
        while (slots_[slot].rank != no_rank && (slots_[slot].left != left || slots_[slot].right != right))
            slot = (slot + 1) & mask_;
        return slots_[slot];
    }

  private:
    std::size_t slot_of(TokenId left, TokenId right) const {
        const auto key =
            std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
        return ((key * 0x9E3779B97F4A7C15) >> 32) &
               mask_;  // the upper half: 2^64 / golden ratio mixes upwards
    }

    std::vector<Entry> slots_ = std::vector<Entry>(2);
    std::size_t mask_ = 1;
};

/// Unigram's model of a piece (Kudo 2018, "Subword regularization"): the segmentation into tokens with the
/// largest sum of scores, which are log-probabilities. Ties and unknown characters are handled as in Hugging
/// Face's tokenizers.
class UnigramModel {
  public:
    UnigramModel() = default;
    /// The parts must have scores, and outlive this.
    explicit UnigramModel(const TokenizerParts& parts);

    /// The best segmentation up to each place in a piece: memory reused for each piece, for one thread.
    struct Work {
        struct Best {
            double score;
            std::uint32_t begin;  // of the last token
            TokenId token;
        };
        std::vector<Best> best;
    };
    /// Appends the tokens of the piece to `ids`; if `plain`, without tokens that are found on request.
    void encode(std::string_view piece, bool plain, Work& work, std::vector<TokenId>& ids) const;

  private:
    static constexpr TokenId none = -1;

    void add(std::string_view spelling, TokenId token);
    /// Calls `found(end, token)` for the tokens that begin at `begin`, shorter ones first.
    template <class Found>
    void for_each_token(std::string_view text, std::size_t begin, bool plain, Found&& found) const;
    void append_unknown(std::string_view part, bool plain, std::vector<TokenId>& ids) const;

    const TokenizerParts* parts_ = nullptr;
    PairTable edges_;               // from node and byte to node; node 0 is the root
    std::vector<TokenId> tokens_;   // token that ends at each node, or none
    std::vector<bool> on_request_;  // of each token
    double unknown_score_ = 0;
};

/// Tokens found in a text before it is cut, as Hugging Face's added tokens, and the white space that they
/// include.
class AddedTokens {
  public:
    /// Finds each token by its paired text. The tokens must outlive this.
    explicit AddedTokens(std::vector<std::pair<std::string, const SpecialToken*>> tokens);
    AddedTokens() = default;

    bool empty() const { return tokens_.empty(); }

    struct Found {
        std::size_t begin = std::string_view::npos, end = begin;
        const SpecialToken* token = nullptr;
    };
    /// Whether to take a token with its text at begin ... end - 1.
    using Wanted = FunctionRef<bool(const SpecialToken& token, std::size_t begin, std::size_t end)>;
    /// Calls `token` for the wanted tokens, with the white space that they include, and `plain` for the text
    /// between, in order. Of several tokens at a place the longest counts.
    void for_each(std::string_view text, Wanted wanted, FunctionRef<void(std::string_view)> plain,
                  FunctionRef<void(const Found&)> token) const;

  private:
    Found next(std::string_view text, std::size_t from, Wanted wanted) const;

    std::vector<std::pair<std::string, const SpecialToken*>> tokens_;  // in order of the texts
    std::array<bool, 256> begins_{};
    int first_bytes_ = 0;  // number of true entries
};

struct Tokenizer::Tables {
    TokenizerParts parts;
    std::unordered_map<std::string_view, TokenId> by_bytes;  // ordinary tokens only
    AddedTokens raw_tokens, normalized_tokens;
    AddedTokens requested;       // on request, from both tables, as spelled
    bool all_on_request = true;  // of the added tokens
    SafeCuts safe_cuts = SafeCuts(parts.pipeline);
    std::array<TokenId, 256> byte_tokens;
    PairTable pairs;
    UnigramModel unigram;  // if there are scores; BPE's tables are then empty
};

/// Applies merges to the tokens of one piece, one a byte or a character, and appends the result to `ids`.
/// Both functions are declared for tests; the encoder chooses by length.
void merge_short_piece(std::span<const TokenId> piece, const PairTable& pairs, std::vector<TokenId>& ids);
void merge_long_piece(std::span<const TokenId> piece, const PairTable& pairs, std::vector<TokenId>& ids);

/// Most tokens for which the quadratic merge_short_piece is faster.
inline constexpr std::size_t longest_short_piece = 64;

}  // namespace mantissa
