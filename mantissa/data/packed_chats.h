// Batches of whole chats, several in a sequence. No chat sees another, and each has positions from zero.
// Tokens that are not learnt are no targets.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mantissa/data/batch.h"
#include "mantissa/data/chat/chat_set.h"

namespace mantissa::inline v0 {

/// Chats by sequences of `room` tokens: the longest first, each into the fullest sequence with room.
std::vector<std::vector<std::uint64_t>> pack_chats(const ChatSet& set, TokenRange range, std::int64_t room);

/// Inputs are packed documents (mantissa/nn/documents.h). An epoch has each sequence once. A sequence is
/// filled up with tokens 0 without targets, each a document of its own.
class PackedChats : public BatchSource {
  public:
    /// Takes the chats in a range of tokens that begins and ends with a chat. `set` must outlive this. Throws
    /// UserError for no chats, or, in sequential order, for fewer sequences than a step takes.
    PackedChats(const ChatSet& set, TokenRange range, std::int64_t sequence, const BatchOptions& options);

    void fill(std::uint64_t step, std::int64_t micro_batch,
              std::span<const std::span<std::byte>> inputs) const override;
    std::uint64_t steps_per_epoch() const override;
    std::uint64_t counted(std::uint64_t step) const override;
    std::string description() const override;
    DataPlace place_at(std::uint64_t step) const override { return reading_.place_at(step); }
    std::string go_on_from(const DataPlace& place) override { return reading_.go_on_from(place); }

  private:
    /// Number of the sequence; one past the last where an epoch's last step is not full.
    std::uint64_t sequence_at(std::uint64_t step, std::uint64_t within) const;

    const ChatSet* set_;
    TokenRange range_;
    std::uint64_t length_;
    BatchOptions options_;
    std::uint64_t per_step_;
    std::vector<std::vector<std::uint64_t>> sequences_;  // of chats
    std::vector<std::uint64_t> targets_;                 // of each sequence
    ReadingOrder reading_;
};

}  // namespace mantissa::inline v0
