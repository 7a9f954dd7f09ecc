// Trades time for memory where the user asks for it: values of the forward pass are computed again by the
// backward pass instead of being kept for it.
//
//   %2 = gelu(%1)  ...  (backward) %9 = matmul(%8, %2)
// becomes
//   %2 = gelu(%1)  ...  (backward) %10 = gelu(%1)  %9 = matmul(%8, %10)
//
// A recomputed node stands just before the first node that reads it. Its origin tells it from its twin, so
// that simplify does not merge the two, and fuse does not make both at one time.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/pass_refusal.h"

namespace mantissa::inline v0 {

/// Values that may be computed again, by name: the outputs of `gelu`, of layer and RMS norms (`norm`), of
/// `softmax`, with the casts and other element-wise work on them. `block`: everything inside a block of the
/// model, a scope such as "h.3"; only values that other blocks read are kept.
std::vector<std::string> recomputable();

struct Recomputation {
    Graph graph;
    int nodes = 0;           ///< that were added
    std::int64_t flops = 0;  ///< that they cost
    std::vector<PassRefusal> refused =
        {};  ///< names that match nothing in the forward pass: matched attention, for one, has no softmax,
             ///< and computes its scores again in any case
};

/// Throws UserError if `what` has a name that is none of recomputable().
Recomputation recompute(const Graph& graph, const std::set<std::string>& what);

/// Whether a node, or the composite that it comes from, was added by recompute(), or by a definition that
/// computes a value again instead of keeping it.
bool is_recomputed(const Node& node);

/// Throws UserError if one of the names is none of recomputable().
void check_recomputable(const std::set<std::string>& what);

}  // namespace mantissa
