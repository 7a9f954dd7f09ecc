// Batches of tokens by position: seed and step alone say which tokens a batch holds, so resuming needs no
// state.
#pragma once

#include <cstdint>
#include <span>

#include "mantissa/data/token_stream.h"

namespace mantissa {

enum class TokenOrder : std::uint8_t {
    /// From the first token of the range on, a step taking accumulate * batch * sequence tokens; starts over
    /// when a
    /// step's tokens and one more do not fit. The split into micro-steps does not change what a step reads.
    sequential,
    /// Windows of `sequence` tokens, each once an epoch, in an order of their own for each (seed, epoch).
    shuffled
};

class BatchSource {
  public:
    struct Options {
        std::int64_t batch = 1;       ///< B: sequences of a micro-step
        std::int64_t sequence = 1;    ///< T
        std::int64_t accumulate = 1;  ///< micro-steps of a step
        TokenOrder order = TokenOrder::sequential;
        std::uint64_t seed = 0;  ///< of the shuffled order
    };

    /// `stream` must outlive this. Throws UserError if the range is too short for one step (one window, if
    /// shuffled).
    BatchSource(const TokenStream& stream, TokenRange range, const Options& options);

    /// `targets` are the tokens that follow each of `inputs`: both [B, T].
    void fill(std::uint64_t step, std::int64_t micro_step, std::span<std::int32_t> inputs,
              std::span<std::int32_t> targets) const;

    /// Steps until the order starts over; if shuffled, rounded down.
    std::uint64_t steps_per_epoch() const;

  private:
    /// Position in the stream of the first input of sequence `row`.
    std::uint64_t start_of(std::uint64_t step, std::uint64_t micro_step, std::uint64_t row) const;

    const TokenStream* stream_;
    TokenRange range_;
    Options options_;
    std::uint64_t sequences_ = 0;  // of one step: accumulate * batch
    std::uint64_t windows_ = 0;    // of `sequence` tokens and the one that follows, in the range
};

}  // namespace mantissa
