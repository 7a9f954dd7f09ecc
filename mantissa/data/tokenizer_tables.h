// The lookup tables behind Tokenizer and Encoder. Internal to data/tokenizer*.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "mantissa/data/added_tokens.h"
#include "mantissa/data/pair_table.h"
#include "mantissa/data/tokenizer.h"
#include "mantissa/data/tokenizer_unigram.h"

namespace mantissa::inline v0 {

struct Tokenizer::Tables {
    TokenizerParts parts;
    std::unordered_map<std::string_view, TokenId> by_bytes;  // ordinary tokens only
    AddedTokens raw_tokens, normalized_tokens;
    AddedTokens requested;       // those on request, of both, as they are spelt
    bool all_on_request = true;  // of the added tokens
    SafeCuts safe_cuts = SafeCuts(parts.pipeline);
    std::array<TokenId, 256> byte_tokens;
    PairTable pairs;
    UnigramModel unigram;  // where there are scores; then what BPE needs is empty
};

/// Applies merges to the tokens of one piece, one a byte or a character, and appends what remains to `ids`.
/// Declared here so that tests can compare its two ways; the encoder chooses by length.
void merge_short_piece(std::span<const TokenId> piece, const PairTable& pairs, std::vector<TokenId>& ids);
void merge_long_piece(std::span<const TokenId> piece, const PairTable& pairs, std::vector<TokenId>& ids);

/// Up to this many tokens the quadratic merge_short_piece is the faster one.
inline constexpr std::size_t longest_short_piece = 64;

}  // namespace mantissa
