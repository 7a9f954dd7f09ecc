// Several documents in one sequence, each read and predicted as if it stood alone: its positions begin anew,
// it sees nothing of the others, and the target of its last token is none. What a model of text takes beside
// its tokens for that, and what it does with it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/nn/model.h"

namespace mantissa::inline v0::nn {

/// Several documents in a sequence, as a model sees them.
enum class Documents : std::uint8_t {
    joined,  ///< one text, in which a document is seen from those behind it
    packed   ///< each stands alone
};

/// Facts of each token of packed documents; empty where they are joined.
struct DocumentPlaces {
    Tensor documents = {};  ///< i32 [B, T]: equal where two tokens are of one document
    Tensor positions = {};  ///< i32 [B, T]: in the document, from 0 on

    explicit operator bool() const { return static_cast<bool>(documents); }
};

/// The inputs of packed documents, in this order.
struct PackedInputs {
    Tensor tokens;          // i32 [B, T]
    Tensor targets;         // i32 [B, T], below 0 where none is counted
    DocumentPlaces places;  // i32 [B, T], twice
    /// How many targets count in a micro-batch, as the mean of all micro-batches of the step: f32 [B], B
    /// times the same number.
    Tensor counted;
};

/// Inputs of a model of text on sequences of so many tokens: `tokens` and `targets` i32 [T], and of packed
/// documents `documents` and `positions` i32 [T] and `counted`, an f32, too.
std::vector<InputSpec> text_inputs(std::int64_t sequence, Documents documents);

/// The entry of a checkpoint about it: nothing where they are joined.
void add_to(Configuration& configuration, Documents documents);

PackedInputs packed_inputs(std::span<const Tensor> inputs);

/// bool [B, 1, T, T]: whether query (row) and key (column) are of one document. documents i32 [B, T].
Tensor in_one_document(Tensor documents);

/// logits [B, T, V], targets i32 [B, T] -> the mean cross-entropy of the targets, of those from 0 on where
/// the mode has such.
Tensor loss_of_text(Tensor logits, Tensor targets, const Mode& mode);

/// logits [B, T, V] -> the cross-entropies of all targets that count, over PackedInputs::counted. So the mean
/// over a step's micro-batches is that over all of its targets that count, however the step is cut.
Tensor loss_of_documents(Tensor logits, const PackedInputs& inputs);

}  // namespace mantissa::nn
