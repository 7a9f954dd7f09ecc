// Sequences cut out of a text: the batches of a language model, whose targets are the tokens that follow.
#pragma once

#include <cstdint>
#include <span>

#include "mantissa/data/batch.h"
#include "mantissa/data/token_stream.h"

namespace mantissa::inline v0 {

/// The inputs are `tokens` and `targets`, i32 [B, T].
///
/// Sequential: from the first token of the range on, a step taking N B T tokens; starts over when a step's
/// tokens and one more do not fit. The split into micro-batches does not change what a step reads. With
/// BatchOptions::all every token but the first is a target once an epoch: sequences that are not full have
/// tokens 0 and targets -1 behind their end.
///
/// Random: an epoch cuts the range into windows of T tokens, each read once in an order of its own; where the
/// first begins is another place in every epoch, so that a text is not always cut in the same places. What
/// lies before the first window and behind the last, less than two windows together, waits for another epoch.
class TextWindows : public BatchSource {
  public:
    /// `stream` must outlive this. Throws UserError if the range is too short for one step (for one window,
    /// if random).
    TextWindows(const TokenStream& stream, TokenRange range, std::int64_t sequence,
                const BatchOptions& options);

    void fill(std::uint64_t step, std::int64_t micro_batch,
              std::span<const std::span<std::byte>> inputs) const override;
    /// The same, as tokens.
    void fill(std::uint64_t step, std::int64_t micro_batch, std::span<std::int32_t> tokens,
              std::span<std::int32_t> targets) const;
    std::uint64_t steps_per_epoch() const override;
    /// Targets of the step.
    std::uint64_t counted(std::uint64_t step) const override;
    /// The number of tokens, their order, and a checksum of those of the first step: telling a text from
    /// another by these needs no reading of all.
    std::string description() const override;
    DataPlace place_at(std::uint64_t step) const override { return reading_.place_at(step); }
    std::string go_on_from(const DataPlace& place) override { return reading_.go_on_from(place); }
    /// Position in the stream of the first token of sequence `within`, of the N B of a step.
    std::uint64_t start_of(std::uint64_t step, std::uint64_t within) const;
    /// How many targets that sequence has: T, or fewer at the end of all.
    std::uint64_t targets_of(std::uint64_t step, std::uint64_t within) const;

  private:
    const TokenStream* stream_;
    TokenRange range_;
    std::uint64_t sequence_;
    BatchOptions options_;
    std::uint64_t sequences_ = 0;  // of one step: N B
    std::uint64_t windows_ = 0;    // of T tokens and the one that follows, in an epoch
    ReadingOrder reading_;
    std::uint64_t places_ = 1;  // where the first window of an epoch may begin
};

}  // namespace mantissa
