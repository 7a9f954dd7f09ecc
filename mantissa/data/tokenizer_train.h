// Training a byte-level BPE tokenizer: the most frequent pair of neighbouring tokens becomes a token, again
// and again (Sennrich et al. 2016), over counted pieces of text rather than the text itself.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <unordered_map>

#include "mantissa/base/function_ref.h"
#include "mantissa/base/thread_pool.h"
#include "mantissa/data/tokenizer.h"

namespace mantissa::inline v0 {

/// Each distinct piece of the text with its number of occurrences. Memory grows with the distinct pieces
/// (about 100 bytes each), not with the text. Pieces over 256 bytes are counted in parts of that size: real
/// words are shorter, and a run of a megabyte would cost its length at every merge.
using PieceCounts = std::unordered_map<std::string, std::uint64_t>;

struct TrainProgress {
    const char* stage;  ///< "counting" or "merging"
    std::uint64_t done, total;
};

using TrainObserver = FunctionRef<void(const TrainProgress&)>;

/// Counts the pieces of the files, one after the other, on all threads of the pool. The observer gets byte
/// counts. Throws UserError if a file cannot be read or is not text.
PieceCounts count_pieces(std::span<const std::filesystem::path> texts, ThreadPool& pool,
                         TrainObserver observer);

/// Throws UserError if a vocabulary of so many tokens cannot hold the 256 bytes and <|endoftext|>.
void require_vocabulary(TokenId vocabulary);

/// Learns a vocabulary of exactly `vocabulary` tokens: the 256 bytes in GPT-2's order, one token a merge, and
/// last <|endoftext|>. The result follows from the counts alone: of equally frequent pairs, the one with the
/// smaller left id comes first, then the smaller right. Only pairs that occur at least twice merge. Throws
/// UserError if vocabulary < 257 or the text has too few such pairs, naming the possible size.
Tokenizer train_tokenizer(const PieceCounts& counts, TokenId vocabulary, TrainObserver observer);

}  // namespace mantissa
