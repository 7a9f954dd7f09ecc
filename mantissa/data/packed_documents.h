// Sequences of a text with several documents: the windows of text_windows.h, and the documents of each token.
//
//   tokens      a b c $ d e $ f     $ ends a document; tokens before the sequence are not seen
//   targets     b c $ - e $ - g     - is -1, not counted: d does not follow from $
//   documents   0 0 0 0 1 1 1 2
//   positions   0 1 2 3 0 1 2 0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mantissa/data/batch.h"
#include "mantissa/data/chat/chat_set.h"
#include "mantissa/data/text_windows.h"

namespace mantissa::inline v0 {

/// The tokens that separate documents.
struct DocumentMarks {
    std::vector<std::int32_t> ends;  ///< each ends a document
    /// The token that begins each document. If it is among `ends`, too, it does not end a document as its
    /// first token.
    std::optional<std::int32_t> first = {};
};

/// The ends of documents in a stream.
class DocumentEnds {
  public:
    /// Reads the stream once; keeps 8 bytes a document. Throws UserError if none of the marks is in it.
    DocumentEnds(const TokenStream& stream, DocumentMarks marks);

    const DocumentMarks& marks() const { return marks_; }
    /// "7 or 9".
    std::string tokens_text() const;
    std::uint64_t documents() const { return positions_.size(); }
    /// Positions of the end tokens, ascending.
    const std::vector<std::uint64_t>& positions() const { return positions_; }
    /// End positions inside the range.
    std::span<const std::uint64_t> within(TokenRange range) const;
    std::uint64_t among(TokenRange range) const { return within(range).size(); }

  private:
    DocumentMarks marks_;
    std::vector<std::uint64_t> positions_;  // ascending
};

/// Facts of each token of a sequence.
struct PackedSequence {
    std::span<std::int32_t> targets;         // [T]: next tokens; -1 at a document's end
    std::span<std::int32_t> documents = {};  // [T]: 0, 1, ...
    std::span<std::int32_t> positions = {};  // [T]: from 0 in each document
};
/// Writes documents and positions, and -1 over targets after a document's last token. `ends`: end positions
/// in the stream; `start`: the sequence's position.
void tell_documents_apart(const PackedSequence& sequence, std::span<const std::uint64_t> ends,
                          std::uint64_t start);

/// Inputs are packed documents (mantissa/nn/documents.h).
class PackedDocuments : public BatchSource {
  public:
    /// `stream` and `ends` must outlive this. Throws UserError as TextWindows does.
    PackedDocuments(const TokenStream& stream, const DocumentEnds& ends, TokenRange range,
                    std::int64_t sequence, const BatchOptions& options);

    void fill(std::uint64_t step, std::int64_t micro_batch,
              std::span<const std::span<std::byte>> inputs) const override;
    std::uint64_t steps_per_epoch() const override { return windows_.steps_per_epoch(); }
    std::string description() const override;
    DataPlace place_at(std::uint64_t step) const override { return windows_.place_at(step); }
    std::string go_on_from(const DataPlace& place) override { return windows_.go_on_from(place); }
    std::uint64_t counted(std::uint64_t step) const override;

  private:
    const DocumentEnds* ends_;
    TextWindows windows_;
    std::uint64_t sequence_;
    BatchOptions options_;
};

/// Chats by sequences of `room` tokens: the longest first, each into the fullest sequence with room.
std::vector<std::vector<std::uint64_t>> pack_chats(const ChatSet& set, TokenRange range, std::int64_t room);

/// Batches of whole chats, several in a sequence. No chat sees another, and each has positions from zero.
/// Inputs are packed documents (mantissa/nn/documents.h). An epoch has each sequence once. A sequence is
/// filled up with tokens 0 without targets, each a document of its own. Tokens that are not learnt are no
/// targets.
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

}  // namespace mantissa
