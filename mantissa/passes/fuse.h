// Groups element-wise operations and row reductions into nests, each of which becomes one fused node.
//
//   %2 = add(%x, %y)  %3 = tanh(%2)  %4 = matmul(%3, %w)
// becomes
//   %2 = fused(%x, %y) {body = add, tanh}  %3 = matmul(%2, %w)
//
// A node joins the groups of its operands wherever that saves moving a value through memory and the whole is
// still a nest (passes/analysis/nest.h). Values made of constants and counters alone are made again by each
// user.
#pragma once

#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/machine.h"
#include "mantissa/passes/pass_refusal.h"

namespace mantissa::inline v0 {

struct Fusion {
    Graph graph;
    /// Nodes that are part of no kernel, groups that were not joined and tails that were not attached; of the
    /// nodes as printed in the graph before.
    std::vector<PassRefusal> refused;
    int kernels = 0;               ///< fused nodes
    int recomputed = 0;            ///< values of the forward pass that nests after it compute again
    std::int64_t bytes_saved = 0;  ///< reads and writes that are no longer made
};

/// Composites are left alone: expand the ones that shall take part first.
Fusion fuse(const Graph& graph, const Machine& machine = {});

/// The origin that a node keeps in a fused body: the rule that decided its formats, for reports. Scope and
/// stage would make equal bodies differ, and a recomputed node is like any other there.
Origin origin_in_body(const Node& node);

/// Whether a composite's definition, all the way down, consists of operations that nests can hold.
bool nest_can_hold(const Graph& graph, const Node& composite);

}  // namespace mantissa
