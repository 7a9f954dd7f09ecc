// Sequences cut from a text: the batches of a language model, with the following tokens as targets.
#pragma once

#include <cstdint>
#include <span>

#include "mantissa/data/batch.h"
#include "mantissa/data/token_stream.h"

namespace mantissa::inline v0 {

/// The inputs are `tokens` and `targets`, i32 [B, T].
///
/// Sequential: from the first token of the range on, N B T tokens a step; starts over if a step's tokens and
/// one more do not fit. The split into micro-batches does not change a step. With BatchOptions::all every
/// token but the first is a target once an epoch; sequences that are not full are padded with tokens 0 and
/// targets -1.
///
/// Random: an epoch cuts the range into windows of T tokens, each read once in an order of its own. The first
/// window begins at another place in every epoch, so that cuts vary. Tokens outside of the windows, less than
/// two windows together, wait for another epoch.
class TextWindows : public BatchSource {
  public:
    /// `stream` must outlive this. Throws UserError if the range is too short for one step (for one window,
    /// if random).
    TextWindows(const TokenStream& stream, TokenRange range, std::int64_t sequence,
                const BatchOptions& options);

    void fill(std::uint64_t step, std::int64_t micro_batch,
              std::span<const std::span<std::byte>> inputs) const override;
    /// Fills tokens and targets.
    void fill(std::uint64_t step, std::int64_t micro_batch, std::span<std::int32_t> tokens,
              std::span<std::int32_t> targets) const;
    std::uint64_t steps_per_epoch() const override;
    /// Targets of the step.
    std::uint64_t counted(std::uint64_t step) const override;
    /// The number of tokens, their order, and a checksum of the first step's tokens, which identify a text
    /// without reading all of it.
    std::string description() const override;
    DataPlace place_at(std::uint64_t step) const override { return reading_.place_at(step); }
    std::string go_on_from(const DataPlace& place) override { return reading_.go_on_from(place); }
    /// Position in the stream of the first token of sequence `within`, among the step's N B.
    std::uint64_t start_of(std::uint64_t step, std::uint64_t within) const;
    /// Targets of that sequence: T, or fewer at the end of the range.
    std::uint64_t targets_of(std::uint64_t step, std::uint64_t within) const;

  private:
    const TokenStream* stream_;
    TokenRange range_;
    std::uint64_t sequence_;
    BatchOptions options_;
    std::uint64_t sequences_ = 0;  // of one step: N B
    std::uint64_t windows_ = 0;    // of T tokens and the next one, in an epoch
    ReadingOrder reading_;
    std::uint64_t places_ = 1;  // possible beginnings of an epoch's first window
};

}  // namespace mantissa
