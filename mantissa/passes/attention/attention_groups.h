// Heads of queries that share keys and values: whether these were repeated for them, and what they are
// before.
//
//   %1 = reshape(%k) [B, G, 1, S, D], %2 = broadcast(%1) [B, G, R, S, D], %3 = reshape(%2) [B, G R, S, D]
// is %k, each of its heads once for R heads of queries.
#pragma once

#include <optional>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/attention/attention_form.h"

namespace mantissa::inline v0 {

/// Keys or values before they were repeated.
struct BeforeRepeat {
    AttentionOperand operand;  ///< without views
    AxisAtoms repeated;        ///< parts of the softmax's axes along which they are equal, in row-major order
};

/// Nothing if the operand is no repetition.
std::optional<BeforeRepeat> before_repeat(const Graph& graph, const AttentionOperand& operand);

/// Whether these parts are the innermost ones of the heads, which are all axes of the batch but the first: so
/// that heads in a row are equal.
bool are_innermost_heads(const AttentionForm& form, const AxisAtoms& parts);

}  // namespace mantissa
