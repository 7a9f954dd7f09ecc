// Exchanges of ranks in a step, as nodes of the graph. A bucket's sum begins when its last gradient is
// finished, and is awaited where one is first read, so that gradients travel while the backward pass works.
//
//     %7 = matmul ...                               %7 = matmul ...
//     %9 = layer_norm_grad ...        becomes       %9 = layer_norm_grad ...
//     ...                                           %10:2 = all_reduce_start(%7, %9) {ranks=4, sum=0}
//     %40 = global_norm(%7, %9, ...)                ...
//                                                   %42:2 = all_reduce_wait(%10.0, %10.1) {ranks=4, sum=0}
//                                                   %43 = global_norm(%42.0, %42.1, ...)
//
// A rank gets the sum of its part of a gradient that is cut (ranks/shard.h): reduce_scatter_start and
// reduce_scatter_wait. It updates its part of the parameter alone, and the updated parts of all ranks are put
// together: all_gather_start and all_gather_wait.
//
// In two parts, since the update is recorded between: `all_reduced`, `reduce_scattered` and `all_gathered`
// put the nodes, `distribute` moves each beginning to its earliest place, with the additions of micro-batches
// that it waits for.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/ranks/sharing.h"

namespace mantissa::inline v0 {

struct Distribution {
    int ranks = 1;
    /// A bucket is full with so many bytes.
    std::int64_t bucket_bytes = std::int64_t{16} << 20;
    States states = States::sharded;
    /// How gradients travel; losses always do in FP32.
    Wire wire = Wire::fp32;
    /// Parameters that a rank has only a part of, as BuiltGraph::sharded of the updating graph
    /// (shard_parameters.h): for graphs that update none.
    std::set<std::string> sharded = {};
};

/// A term of a sum.
struct ReducedTerm {
    Tensor term;       // f32
    NodeId made = -1;  ///< the node after which the gradient is finished: buckets are filled in this order
};

/// The sums over all ranks, in the order of the terms, which travel as the distribution says. With one rank:
/// the terms.
std::vector<Tensor> all_reduced(Graph& graph, std::span<const ReducedTerm> terms,
                                const Distribution& distribution);

/// This rank's part of each sum over all ranks, in the order of the terms.
std::vector<Tensor> reduce_scattered(Graph& graph, std::span<const ReducedTerm> terms,
                                     const Distribution& distribution);

/// The tensors of these shapes that the ranks' parts make up, in their order; begun a bucket at a time, in
/// the same order.
std::vector<Tensor> all_gathered(Graph& graph, std::span<const Tensor> parts, std::span<const Shape> shapes,
                                 const Distribution& distribution);

/// The tensors [n, ...] of all ranks, one behind another: [ranks n, ...]. Begun a bucket at a time.
std::vector<Tensor> all_gathered_rows(Graph& graph, std::span<const Tensor> tensors,
                                      const Distribution& distribution);

/// The graph with every beginning as early as its operands let it. Changes no value.
Graph distribute(const Graph& graph);

}  // namespace mantissa
