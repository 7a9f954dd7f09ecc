// Sums of gradients over ranks as nodes of the graph: begun where the last gradient of a bucket is finished,
// awaited where the first is read, so that they travel while the backward pass works.
//
//     %7 = matmul ...                               %7 = matmul ...
//     %9 = layer_norm_grad ...        becomes       %9 = layer_norm_grad ...
//     ...                                           %10:2 = all_reduce_start(%7, %9) {ranks=4, sum=0}
//     %40 = global_norm(%7, %9, ...)                ...
//                                                   %42:2 = all_reduce_wait(%10.0, %10.1) {ranks=4, sum=0}
//                                                   %43 = global_norm(%42.0, %42.1, ...)
//
// In two parts, since the update is recorded between: `all_reduced` puts the nodes, `distribute` moves each
// beginning to where it may be, with the additions of micro-steps that it waits for.
#pragma once

#include <span>
#include <vector>

#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0 {

struct Distribution {
    int ranks = 1;
    /// A bucket is full with so many bytes: few enough that most of a backward pass is left when the first
    /// is, and enough that what a message costs beside its bytes does not count.
    std::int64_t bucket_bytes = std::int64_t{16} << 20;
};

/// What takes part in a sum.
struct ReducedTerm {
    Tensor term;       // f32
    NodeId made = -1;  ///< by what the backward pass is done with it: buckets are filled in this order
};

/// The sums over all ranks, in the order of the terms. With one rank: the terms.
std::vector<Tensor> all_reduced(Graph& graph, std::span<const ReducedTerm> terms,
                                const Distribution& distribution);

/// The same graph with every all_reduce_start as early as its operands let it. Changes no value.
Graph distribute(const Graph& graph);

}  // namespace mantissa
