// Unigram's model of a piece (Kudo 2018, "Subword regularization"): of all ways to make it up from tokens the
// one of the largest sum of scores, which are log-probabilities. Ties and unknown characters as in Hugging
// Face's tokenizers. Internal to data/tokenizer*.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "mantissa/data/pair_table.h"
#include "mantissa/data/tokenizer.h"

namespace mantissa::inline v0 {

class UnigramModel {
  public:
    UnigramModel() = default;
    /// The parts have scores, and must outlive this.
    explicit UnigramModel(const TokenizerParts& parts);

    /// The best way to each place in a piece: kept from piece to piece, for one thread.
    struct Work {
        struct Best {
            double score;
            std::uint32_t begin;  // of the last token
            TokenId token;
        };
        std::vector<Best> best;
    };
    /// Appends the tokens of the piece to `ids`; none that is found in texts on request if `plain`.
    void encode(std::string_view piece, bool plain, Work& work, std::vector<TokenId>& ids) const;

  private:
    static constexpr TokenId none = -1;

    void add(std::string_view spelling, TokenId token);
    /// Calls `found(end, token)` for the tokens that begin at `begin`, the shorter first.
    template <class Found>
    void for_each_token(std::string_view text, std::size_t begin, bool plain, Found&& found) const;
    void append_unknown(std::string_view part, bool plain, std::vector<TokenId>& ids) const;

    const TokenizerParts* parts_ = nullptr;
    PairTable edges_;               // from a node by a byte to a node; node 0 is the root
    std::vector<TokenId> tokens_;   // that end at each node, or none
    std::vector<bool> on_request_;  // of each token
    double unknown_score_ = 0;
};

}  // namespace mantissa
