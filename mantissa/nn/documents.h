// Several documents in one sequence, each read and predicted as if alone: positions begin anew, it sees no
// other document, and its last token has no target. Here are a text model's extra inputs for that, and their
// use.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/nn/model.h"

namespace mantissa::inline v0::nn {

/// Treatment of several documents in a sequence.
enum class Documents : std::uint8_t {
    joined,  ///< one text: later documents see earlier ones
    packed   ///< each document stands alone
};

/// Document and position of each token of packed documents; empty where they are joined.
struct DocumentPlaces {
    Tensor documents = {};  ///< i32 [B, T]: equal for tokens of one document
    Tensor positions = {};  ///< i32 [B, T]: in the document, from 0

    explicit operator bool() const { return static_cast<bool>(documents); }
};

/// The inputs of packed documents, in this order.
struct PackedInputs {
    Tensor tokens;          // i32 [B, T]
    Tensor targets;         // i32 [B, T], below 0: not counted
    DocumentPlaces places;  // i32 [B, T], twice
    /// Counted targets of a micro-batch, averaged over the step's micro-batches: f32 [B], B equal numbers.
    Tensor counted;
};

/// Inputs of a text model for sequences of so many tokens: `tokens` and `targets` i32 [T]; for packed
/// documents also `documents` and `positions` i32 [T] and `counted`, an f32.
std::vector<InputSpec> text_inputs(std::int64_t sequence, Documents documents);

/// Adds the entry of a checkpoint; none where documents are joined.
void add_to(Configuration& configuration, Documents documents);

PackedInputs packed_inputs(std::span<const Tensor> inputs);

/// bool [B, 1, T, T]: whether query (row) and key (column) are in one document. documents i32 [B, T].
Tensor in_one_document(Tensor documents);

/// logits [B, T, V], targets i32 [B, T] -> the mean cross-entropy of the targets; if Mode::may_lack_targets,
/// of targets at 0 or above.
Tensor loss_of_text(Tensor logits, Tensor targets, const Mode& mode);

/// logits [B, T, V] -> the sum of the counted targets' cross-entropies over PackedInputs::counted. The mean
/// over a step's micro-batches is then the mean over all its counted targets, however the step is cut.
Tensor loss_of_documents(Tensor logits, const PackedInputs& inputs);

}  // namespace mantissa::nn
