// Makes the addend of an embedding's gradient an operand of that gradient.
//
//   %2 = embedding_grad(%dy, %ids) {rows=V}  %3 = add(%g, %2)
// becomes
//   %3 = embedding_grad(%dy, %ids, %g) {rows=V}
//
// The gradient of a table that is tied to the last layer is such a sum. In two operations a table of zeros is
// written, added to here and there, read and added to another. In one, rows are added to %g in place, if
// nobody reads %g later. The order of the sum differs: rows are added to %g one by one.
#pragma once

#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

/// Folds addends into embedding gradients that have none and are read by one `add` alone.
Graph fold_addends(const Graph& graph);

}  // namespace mantissa
